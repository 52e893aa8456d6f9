"""A TypeScript program that compiles if a dashboard is as Grafana's own types are: dashboard.py FILE

To be compiled beside the npm package @grafana/schema. Each panel is a constant, so that an error shows which one it is.
"""

import json
import sys

# Grafana's names of the panels that are used.
KINDS = {"bargauge": "BarGauge", "stat": "Stat", "timeseries": "TimeSeries"}
FOLDER = "./node_modules/@grafana/schema/dist/esm"

dashboard = json.load(open(sys.argv[1]))
panels = dashboard.pop("panels")
for annotation in dashboard["annotations"]["list"]:
    # The data source's own, as a panel's targets are; tests/package.sh has its query read by promtool.
    for key in ("target", "titleFormat"):
        annotation.pop(key, None)
print(f'import type {{ Dashboard, Panel, RowPanel }} from "{FOLDER}/veneer/dashboard.types";')
for kind, name in KINDS.items():
    path = f"{FOLDER}/raw/composable/{kind}/panelcfg/x/{name}PanelCfg_types.gen"
    print(f'import type * as {kind} from "{path}";')
print("""
// What is written in JSON: enumerations are their values. What all panels have, they need not write.
type Json<T> = T extends string ? `${T}` : T extends number ? number | T : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
type Of<O, F> = Omit<Json<Panel>, "options" | "fieldConfig"> & {
    options: Json<O>;
    fieldConfig: { defaults: Omit<NonNullable<Json<Panel>["fieldConfig"]>["defaults"], "custom"> & { custom?: Json<F> }; overrides: NonNullable<Json<Panel>["fieldConfig"]>["overrides"] };
};
""")
print("export const dashboard: Json<Dashboard> =", json.dumps(dashboard), ";")
for panel in panels:
    kind = panel["type"]
    if kind == "row":
        of = "Json<RowPanel>"
    elif kind == "timeseries":
        of = "Of<timeseries.Options, Partial<timeseries.FieldConfig>>"
    else:
        of = f"Of<Partial<{kind}.Options>, {{}}>"
    print(f"// {panel['title']}\nexport const panel{panel['id']}: {of} =", json.dumps(panel), ";")
