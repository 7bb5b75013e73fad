"""Three congestion controls on one incast: `python examples/compare_controls.py`.

Fifteen hosts of a leaf-spine fabric send 1 MiB each to the sixteenth, while switches pause before they drop.
"""

import polars as pl

import simtwin

fabric = simtwin.Fabric.make(
    topology={"kind": "leaf-spine", "leaves": 4, "spines": 4, "hosts_per_leaf": 4},
    link={"rate": "100Gb/s", "delay": "500ns"},
    switch={"shared_buffer": "4MiB"},
    pfc={},
    ecn={"minimum": "100kB", "maximum": "400kB", "probability": 0.2},
)
incast = simtwin.incast(fabric, "1MiB", target=15)

rows = []
for control in ("dcqcn", "hpcc", "swift"):
    run = simtwin.simulate(fabric.with_control(control), incast)
    fct_us = run.flow_completion["fct_ns"] / 1000
    rows.append(
        {
            "control": control,
            "FCT p50 (us)": fct_us.quantile(0.5),
            "FCT p99 (us)": fct_us.quantile(0.99),
            "longest queue (kB)": run.links["longest_queue_bytes"].max() / 1000,
            "marks": run.links["marked"].sum(),
            "pauses": run.links["pauses"].sum(),
        }
    )

with pl.Config(tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, tbl_formatting="MARKDOWN", tbl_cols=-1):
    print(pl.DataFrame(rows))
