"""The page's style sheet: a paper's supplement. System fonts, two themes, a phone's width, print.

Series colours are Okabe and Ito's (2008), darkened or lightened until each has a contrast of 3 or more to its
paper.
"""

CSS = """
:root { color-scheme: light dark;
  --paper: #fdfdfb; --panel: #f5f4ef; --ink: #1b1e23; --soft: #5c626b; --rule: #dcdad2; --link: #0b5394;
  --good: #1a6b3c; --bad: #a8321f; --open: #8a5a00; --none: #5c626b;
  --series-0: #4a4f57; --series-1: #0072b2; --series-2: #b45f06; --series-3: #a3447f; --series-4: #00795a;
  --series-5: #7a6a00;
  --sans: "Inter", "Source Sans 3", "Helvetica Neue", Arial, "Liberation Sans", sans-serif;
  --serif: "Source Serif 4", "Charter", "Bitstream Charter", "Georgia", "Liberation Serif", serif;
  --mono: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, "Liberation Mono", monospace; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14161a; --panel: #1d2025; --ink: #e4e2dc; --soft: #a3a8b0; --rule: #353940; --link: #86bdf0;
  --good: #71cf98; --bad: #ff9a85; --open: #e8b75a; --none: #a3a8b0;
  --series-0: #b9bec6; --series-1: #56b4e9; --series-2: #f0a04b; --series-3: #e391bf; --series-4: #4fc9a2;
  --series-5: #d8c65a; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 var(--sans); overflow-wrap: anywhere; }
main, header, footer { max-width: 68rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.2rem; }
a { color: var(--link); text-decoration-thickness: 1px; text-underline-offset: 2px; }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
h1 { font: 600 1.62rem/1.28 var(--serif); margin: .35rem 0 .7rem; text-wrap: pretty; max-width: 50rem; }
h2 { font: 600 1.22rem/1.3 var(--serif); margin: 2.6rem 0 .5rem; padding-top: .7rem;
  border-top: 1px solid var(--rule); }
h3 { font: 600 .95rem/1.4 var(--sans); margin: 1.3rem 0 .3rem; }
p { margin: .45rem 0; max-width: 46rem; }
.eyebrow { color: var(--soft); font-size: .84rem; margin: 0 0 1.1rem; max-width: none; }
.exit { font-size: 1rem; margin: 0 0 .2rem; }
.note, figcaption, caption { color: var(--soft); font-size: .84rem; line-height: 1.45; }
code, pre { font: .86em/1.45 var(--mono); } code, .word, a { unicode-bidi: isolate; }
pre { background: var(--panel); border-left: 3px solid var(--rule); padding: .6rem .8rem; margin: .5rem 0;
  white-space: pre-wrap; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .28rem 1.1rem; margin: .6rem 0; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; }
.findings { border: solid var(--rule); border-width: 1px 0; padding: .7rem 0; }
.findings dt a { color: inherit; }
nav ol { list-style: none; padding: 0; margin: .8rem 0 0; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem;
  font-size: .88rem; }
.scroll { overflow-x: auto; margin: .6rem 0; max-width: 100%; }
table { border-collapse: collapse; font-size: .86rem; line-height: 1.35; font-variant-numeric: tabular-nums;
  overflow-wrap: normal; }
caption { text-align: left; padding-bottom: .35rem; }
caption span { display: block; max-width: calc(100vw - 2rem); }
th, td { padding: .26rem .55rem .26rem 0; text-align: left; vertical-align: baseline; }
th { font-weight: 600; } th[scope=row] { white-space: nowrap; }
thead th { border-bottom: 1px solid var(--ink); vertical-align: bottom; font-size: .8rem; color: var(--soft); }
table { border-bottom: 1px solid var(--ink); }
tbody tr { border-top: 1px solid var(--rule); } thead + tbody > tr:first-child { border-top: 0; }
.n { text-align: right; white-space: nowrap; }
.free { min-width: 12.5rem; max-width: 30rem; overflow-wrap: anywhere; }
th.free { min-width: 8rem; max-width: 15rem; white-space: normal; }
.word { font-weight: 600; white-space: nowrap; color: var(--none); }
.word.good { color: var(--good); } .word.bad { color: var(--bad); } .word.open { color: var(--open); }
.sub { display: block; color: var(--soft); font-size: .78rem; font-weight: 400; }
.surprise { color: var(--bad); font-weight: 600; }
.verdicts { font-size: .95rem; } .verdicts th, .verdicts td { padding: .42rem 1.6rem .42rem 0; }
.fault { border-left: 4px solid var(--rule); background: var(--panel); padding: .5rem .9rem; margin: .8rem 0; }
.fault.bad { border-color: var(--bad); } .fault.open { border-color: var(--open); } .fault p { margin: .2rem 0; }
.panels { display: flex; flex-wrap: wrap; gap: .2rem 1rem; }
figure { margin: .8rem 0; min-width: 0; max-width: 100%; }
figure svg { display: block; max-width: 100%; height: auto; }
.broad svg { min-width: 29rem; } .wide svg { max-width: none; }
figcaption { max-width: 46rem; margin-top: .3rem; }
details { margin: .4rem 0; } summary { cursor: pointer; color: var(--link); font-size: .86rem; }
ul { padding-left: 1.2rem; margin: .4rem 0; } dd ul { margin: 0; }
footer { color: var(--soft); font-size: .82rem; margin-top: 3rem; padding-bottom: 2.5rem; }
.skip { position: absolute; left: -100rem; } .skip:focus { position: static; }
@media (max-width: 40rem) {
  body { font-size: 14.5px; } h1 { font-size: 1.32rem; } main, header, footer { padding-inline: .9rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; }
  .verdicts th, .verdicts td { padding-right: .9rem; } .verdicts td { min-width: 6.2rem; } }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@media print {
  :root { --paper: #fff; --panel: #f4f4f4; --ink: #000; --soft: #444; --rule: #ccc; --link: #000; --good: #0a4a25;
    --bad: #8a1d0c; --open: #6a4500; --none: #444; --series-0: #4a4f57; --series-1: #0072b2; --series-2: #b45f06;
    --series-3: #a3447f; --series-4: #00795a; --series-5: #7a6a00; }
  body { font-size: 9pt; } nav, .skip { display: none; } .scroll { overflow: visible; }
  table { font-size: 6.9pt; } .sub { font-size: 6.2pt; } thead th { font-size: 6.4pt; }
  th, td, .verdicts th, .verdicts td { padding-right: .25rem; } .n, td:has(+ .n) { padding-right: .4rem; }
  .free { min-width: 8rem; } .n, .word, th[scope=row] { white-space: normal; } .wide svg { max-width: 100%; }
  details::details-content { content-visibility: visible; display: block; } summary { list-style: none; }
  figure, svg, tr, .fault { break-inside: avoid; } h2, h3, caption { break-after: avoid; }
  main, header, footer { max-width: none; padding: 0; } }
"""
