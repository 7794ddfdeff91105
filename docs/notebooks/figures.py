# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Figures for a paper
#
# Every result has `plot()`, an Altair chart, and `to_dataframe()`, its numbers. This notebook makes a figure of a
# fixed width with larger type, saves it as a vector file, and prints the table of the appendix.

# %%
from pathlib import Path

import altair as alt

import interp
from interp.tasks import Lego

task = Lego(n_vars=2)
loop = interp.known_answers.lego_loop(task)
found = interp.audit(loop, task)
probes = interp.probe(loop, task, n_train=400, n_test=200)

# %% [markdown]
# ## Style
#
# A chart of a result is an ordinary Altair chart: change size, type and title with `configure_*` and `properties`.

# %%
figure = (
    found.plot()
    .configure_axis(labelFontSize=13, titleFontSize=14, grid=False)
    .configure_legend(labelFontSize=13, titleFontSize=13)
    .configure_title(fontSize=15, anchor="start")
)
figure

# %% [markdown]
# ## Save
#
# SVG and PDF are vector files; PNG needs a resolution. No browser and no network are needed. An HTML file has its
# JavaScript inside.

# %%
folder = Path("figures")
folder.mkdir(exist_ok=True)
figure.save(folder / "audit.svg")
figure.save(folder / "audit.pdf")
figure.save(folder / "audit.png", ppi=300)
sorted(path.name for path in folder.iterdir())

# %% [markdown]
# ## A chart that no result has
#
# Take the numbers and draw them with any library. Here is probe accuracy against its control, in one line per layer:

# %%
table = probes.to_dataframe()
table.head()

# %%
points = (
    alt.Chart(table)
    .mark_circle(size=60)
    .encode(
        x=alt.X("control:Q", title="control task"),
        y=alt.Y("accuracy:Q", title="probe"),
        color=alt.Color("layer:O", scale=alt.Scale(scheme="viridis")),
    )
)
interp.view.offline.offline(points.properties(width=260, height=220))

# %% [markdown]
# ## The table of the appendix

# %%
columns = ["layer", "head", "label", "verdict"]
print(found.to_dataframe()[columns].to_latex(index=False))

# %% [markdown]
# ## What to report
#
# State n and the level with the verdicts, and store the result: `found.save("audit.json")` has every number of the
# figure. The last lines of a printed result have what a caption needs:

# %%
found.save("audit.json")
print("\n".join(str(found).splitlines()[-3:]))
