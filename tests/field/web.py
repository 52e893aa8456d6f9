"""nginx as a server of transfers."""

from pathlib import Path

CONFIGURATION = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  {http}
}}
"""


def nginx(folder, http):
    """A command that has nginx serve as `http` says, with its files in a folder that all may read."""
    path = Path(folder) / "nginx.conf"
    path.write_text(CONFIGURATION.format(folder=folder, http=http))
    return f"nginx -c {path}"
