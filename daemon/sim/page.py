"""One HTML page about a trace: the figures of all policies, and two charts.  No other file."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from daemon.sim.report import rows
from daemon.sim.run import Outcome

_BINS = 200
_EDGES = (10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600)
_LABELS = (
    "10 s",
    "30 s",
    "1 min",
    "2 min",
    "5 min",
    "10 min",
    "30 min",
    "1 h",
    "4 h",
    "1 d",
    "more",
)
_WIDTH, _HEIGHT = 900, 220

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; } td, th { padding: .15em .8em; text-align: right; }
td:first-child { text-align: left; white-space: pre; } tr:nth-child(even) { background: #8881; }
svg { width: 100%; height: auto; } text { font-size: 12px; fill: currentColor; }
.bar { fill: #2a7; } .use { fill: #27a; }
"""


def charts(outcome: Outcome) -> dict[str, list[float]]:
    """Return what is drawn: idle node-hours by length of gap, and the part of nodes in use."""
    hours = [0.0] * (len(_EDGES) + 1)
    for gap in outcome.gaps:
        place = next((n for n, edge in enumerate(_EDGES) if gap <= edge), len(_EDGES))
        hours[place] += gap / 3600
    return {"gap_hours": hours, "use": _use(outcome)}


def _use(outcome: Outcome) -> list[float]:
    """Return the part of all nodes that priority jobs held, on average, in equal times."""
    width = (outcome.end - outcome.begin) / _BINS
    used = [0.0] * _BINS
    if width <= 0:
        return used
    for job in outcome.started:
        first = int((job.began - outcome.begin) / width)
        for place in range(first, _BINS):
            low = outcome.begin + place * width
            part = min(job.ended, low + width) - max(job.began, low)
            if part <= 0:
                break
            used[place] += part * job.nodes
    return [each / (width * outcome.nodes) for each in used]


def page(results: Sequence[Mapping[str, Any]], drawn: Mapping[str, Sequence[float]]) -> str:
    """Return the page; the charts are of the first policy."""
    first = results[0]
    heads = "".join(f"<th>{escape(each['policy'])}</th>" for each in results)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows({each["policy"]: each for each in results})
    )
    said = "".join(f"<p>Guessed: {escape(guess)}.</p>" for guess in first["guesses"])
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(first["trace"])}</title>
<style>{_STYLE}</style></head><body>
<h1>What stopgap would win: {escape(first["trace"])}</h1>
{said}
<table><tr><th></th>{heads}</tr>
{body}
</table>
<h2>Nodes in use by priority jobs, from begin to end</h2>
{_area(drawn["use"])}
<h2>Idle node-hours, by the length of the gap</h2>
{_bars(drawn["gap_hours"])}
</body></html>
"""


def _area(shares: Sequence[float]) -> str:
    step = _WIDTH / max(len(shares), 1)
    bars = "".join(
        f'<rect class="use" x="{n * step:.1f}" y="{_HEIGHT * (1 - share):.1f}" '
        f'width="{step:.1f}" height="{_HEIGHT * share:.1f}"/>'
        for n, share in enumerate(shares)
    )
    frame = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#8882"/>'
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}">{frame}{bars}</svg>'


def _bars(hours: Sequence[float]) -> str:
    step, most = _WIDTH / len(hours), max(*hours, 1e-9)
    parts = []
    for n, (label, amount) in enumerate(zip(_LABELS, hours, strict=True)):
        height = (_HEIGHT - 40) * amount / most
        x = n * step
        parts.append(
            f'<rect class="bar" x="{x + 5:.1f}" y="{_HEIGHT - 20 - height:.1f}" '
            f'width="{step - 10:.1f}" height="{height:.1f}"/>'
            f'<text x="{x + 5:.1f}" y="{_HEIGHT - 5}">≤ {label}</text>'
            f'<text x="{x + 5:.1f}" y="{_HEIGHT - 24 - height:.1f}">{amount:,.0f}</text>'
        )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}">{"".join(parts).replace("≤ more", "more")}</svg>'
