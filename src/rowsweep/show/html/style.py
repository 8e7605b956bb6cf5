"""How the HTML views look: in the colours of the page's theme, light or dark, and plain without any."""

from __future__ import annotations

from typing import Final

from rowsweep.show.words.facts import Tone

_MARKS: Final[dict[Tone, str]] = {"good": "✓", "bad": "✕", "warn": "○", "busy": "●", "dim": "·", "plain": "·"}
_STATES: Final = {"paused": "❚❚", "cancelled": "■", "stalled": "!"}

_CSS: Final = """
.rowsweep{--rs-text:var(--jp-ui-font-color1,var(--vscode-foreground,inherit));
--rs-dim:var(--jp-ui-font-color2,var(--vscode-descriptionForeground,#616161));
--rs-line:var(--jp-border-color2,var(--vscode-widget-border,#bdbdbd));
--rs-back:var(--jp-layout-color2,var(--vscode-editorWidget-background,rgba(127,127,127,.18)));
--rs-good:var(--jp-success-color1,#388e3c);--rs-bad:var(--jp-error-color1,#d32f2f);
--rs-warn:var(--jp-warn-color1,#f57c00);--rs-busy:var(--jp-brand-color1,#1976d2);--rs-plain:var(--rs-dim);
color:var(--rs-text);font-family:var(--jp-ui-font-family,system-ui,sans-serif);
font-size:var(--jp-ui-font-size1,13px);line-height:1.5;font-variant-numeric:tabular-nums;max-width:60em}
.rowsweep-live .widget-html{min-width:0;width:auto}.rowsweep-live .widget-html-content{min-width:0;width:100%}
.rowsweep .rs-head{display:flex;gap:1em;align-items:baseline}
.rowsweep .rs-name{font-weight:600;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:0;flex:0 1 auto}
.rowsweep .rs-state,.rowsweep .rs-head small{white-space:nowrap;flex:none}
.rowsweep .rs-mark{font-size:.85em;display:inline-block;min-width:1em}
.rowsweep .rs-progress{display:flex;gap:.8em;align-items:center;margin:.25em 0}
.rowsweep .rs-bar{flex:1;height:.7em;border-radius:.35em;background:var(--rs-back);overflow:hidden;
box-shadow:inset 0 0 0 1px var(--rs-line)}
.rowsweep .rs-fill{display:block;height:100%;border-radius:.35em}
.rowsweep .rs-share{flex:none;min-width:4.2em;text-align:right}
.rowsweep .rs-shards{display:grid;grid-template-columns:repeat(auto-fill,minmax(19em,1fr));gap:0 1.6em}
.rowsweep .rs-shard{display:grid;grid-template-columns:1.6em minmax(3em,1fr) 13em;gap:.5em;align-items:center}
.rowsweep .rs-shard small{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.rowsweep .rs-shard .rs-bar{height:.45em}
.rowsweep .rs-seeking{width:28%;animation:rs-seek 1.6s ease-in-out infinite alternate}
@keyframes rs-seek{from{margin-left:0}to{margin-left:72%}}
@media (prefers-reduced-motion:reduce){.rowsweep .rs-seeking{animation:none;width:100%;opacity:.35}}
.rowsweep table{border-collapse:collapse;border:0;margin:.2em 0;font-size:inherit;color:inherit}
.rowsweep table.rs-figures{table-layout:fixed;width:100%}
.rowsweep tbody tr,.rowsweep thead,.rowsweep thead tr{background:none;border:0}
.rowsweep th,.rowsweep td{text-align:left;vertical-align:top;padding:.1em .8em .1em 0;border:0;max-width:none;
line-height:1.45}
.rowsweep th.rs-number,.rowsweep td.rs-number{text-align:right}
.rowsweep th{font-weight:400;color:var(--rs-dim);white-space:nowrap}
.rowsweep .rs-figures td{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.rowsweep .rs-value{font-size:1.12em}
.rowsweep .rs-dim,.rowsweep small{color:var(--rs-dim);font-size:.92em}
.rowsweep .rs-chart{display:block;width:100%;height:3.2em;border-bottom:1px solid var(--rs-line)}
.rowsweep .rs-area{fill:var(--rs-busy);fill-opacity:.16}
.rowsweep .rs-line{fill:none;stroke:var(--rs-busy);stroke-width:1.5;vector-effect:non-scaling-stroke}
.rowsweep .rs-says{min-height:1.5em;overflow-wrap:anywhere}
.rowsweep details{margin:.2em 0}
.rowsweep summary{cursor:pointer;color:var(--rs-dim)}
.rowsweep pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.2em 0;padding:.4em .6em;max-height:16em;
overflow:auto;background:var(--rs-back);color:inherit;font-size:.92em;
font-family:var(--jp-code-font-family,monospace)}
.rowsweep .rs-long{overflow-wrap:anywhere;white-space:normal}
.rowsweep .rs-board td,.rowsweep .rs-frame td{white-space:nowrap;max-width:28em;overflow:hidden;
text-overflow:ellipsis}
.rowsweep .rs-frame th,.rowsweep .rs-frame td{padding:.15em .9em .15em .3em;border-bottom:1px solid var(--rs-line)}
.rowsweep .rs-changed{font-weight:600;box-shadow:inset 2px 0 0 var(--rs-busy);background:var(--rs-back)}
.rowsweep .rs-board{overflow-x:auto}
.rowsweep .rs-row{display:grid;grid-template-columns:minmax(0,2fr) minmax(0,1.6fr) minmax(0,1.2fr)
minmax(0,.8fr) minmax(0,1.1fr);gap:.8em;align-items:baseline;line-height:28px}
.rowsweep .rs-row>span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.rowsweep h4{margin:.7em 0 .1em;font-size:1em;font-weight:600}
"""

STYLE: Final = f"<style>{_CSS.replace(chr(10), ' ')}</style>"


def colour(tone: Tone) -> str:
    """Answer the CSS value of a tone's colour."""
    return f"var(--rs-{'plain' if tone == 'dim' else tone})"


def marked(words: str, tone: Tone) -> str:
    """Answer words (already escaped) behind a mark, so that their colour is never the only sign; it is not read out."""
    mark = _STATES.get(words, _MARKS[tone])
    return f'<span class="rs-mark" aria-hidden="true" style="color:{colour(tone)}">{mark}</span> {words}'
