"""Whether a relay tells what is asked of it: named.py METRICS FILE...

METRICS is what a running relay told. Each metric of a relay's that a FILE names must be in it, but for those of
NetAssist, and those that come only once something was decided.
"""

import re
import sys

ELSEWHERE = re.compile(r"midspan_assist_|midspan_decide_(gain_ratio|units)")

told = {re.split(r"[ {]", line, maxsplit=1)[0] for line in open(sys.argv[1]) if line[0] != "#"}
missing = set()
for name in sys.argv[2:]:
    named = set(re.findall(r"\b(?:midspan|process)_\w+\b", open(name).read()))
    missing |= {metric for metric in named - told if not ELSEWHERE.match(metric)}
if missing:
    sys.exit("not told by a relay: " + ", ".join(sorted(missing)))
print(f"{len(told)} metrics are told, all that are asked for among them")
