// The style of every page. Sizes follow the reader's own font size; colours are variables, so that
// a theme is one list of them. Text has a contrast of at least 4.5 to 1 on its ground in both
// themes, curves of at least 3 to 1.
#include "tutti/report/page.h"

namespace tutti::report {
namespace {

// The dark colours stand twice in the style: for the reader's setting, and for the button.
#define TUTTI_DARK_COLORS                                                           \
  "color-scheme:dark;--ground:#141516;--card:#1b1d1f;--ink:#eceae6;--soft:#a5a7aa;" \
  "--rule:#33363a;--grid:#272a2d;--good:#7bd3a0;--bad:#ff9b8f;--tint:#22262b;"      \
  "--c0:#79a8ff;--c1:#f2a15f;--c2:#58c9b9;--c3:#c0a2fb;--c4:#d8bb55;--c5:#f48fb8;"

constexpr std::string_view kStyle =
    R"css(
:root{color-scheme:light;--ground:#f6f5f1;--card:#fff;--ink:#1c1d1f;--soft:#5d6065;
--rule:#dedbd3;--grid:#eceae4;--good:#14683d;--bad:#a8281a;--tint:#efeee9;
--c0:#1f5ec9;--c1:#b8500c;--c2:#0b7568;--c3:#6f3fd0;--c4:#8a6400;--c5:#b3216b;}
@media (prefers-color-scheme:dark){:root:not([data-theme=light]){)css" TUTTI_DARK_COLORS R"css(}}
:root[data-theme=dark]{)css" TUTTI_DARK_COLORS R"css(}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{margin:0;background:var(--ground);color:var(--ink);
font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Noto Sans",sans-serif;
font-variant-numeric:tabular-nums lining-nums;overflow-wrap:break-word}
.page{max-width:74rem;margin:0 auto;padding:2.5rem 1.75rem 3rem}
a{color:var(--c0);text-underline-offset:.2em;text-decoration-thickness:1px}
:focus-visible{outline:2px solid var(--c0);outline-offset:2px;border-radius:3px}
.skip{position:absolute;left:-99em}.skip:focus{left:1rem;top:1rem}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);
white-space:nowrap}
header{position:relative;margin-bottom:1.75rem}
.kind{margin:0;color:var(--soft);font-size:.875rem}
.brand{font-weight:650;color:var(--ink);letter-spacing:.01em;margin-right:.6em;
padding-right:.75em;border-right:1px solid var(--rule)}
#theme{position:absolute;right:0;top:-.25rem}
h1{margin:.5rem 0 .25rem;font-size:clamp(1.6rem,1.15rem + 2vw,2.4rem);line-height:1.15;
font-weight:650;letter-spacing:-.018em;overflow-wrap:anywhere}
.status{display:inline-block;margin:.35rem 0 .6rem;font-weight:600;font-size:.9375rem}
.status::before{content:"";display:inline-block;width:.55em;height:.55em;border-radius:50%;
background:currentColor;margin-right:.5em}
.status.good{color:var(--good)}.status.bad{color:var(--bad)}.status.neutral{color:var(--c0)}
.lead{margin:0;max-width:46rem;font-size:1.0625rem;color:var(--soft);text-wrap:pretty}
.notice{margin:.9rem 0 0;max-width:52rem;padding:.55rem .9rem;background:var(--tint);
border-left:3px solid var(--c1);font-size:.9375rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));margin:0 0 1.25rem;
background:var(--card);border:1px solid var(--rule);border-radius:10px;overflow:hidden}
.tiles>div{padding:.95rem 1.15rem 1rem;box-shadow:1px 1px 0 0 var(--rule)}
.tiles dt{color:var(--soft);font-size:.8125rem}
.tiles dd{margin:0;font-size:1.5rem;line-height:1.25;font-weight:600;letter-spacing:-.015em;
overflow-wrap:anywhere}
.tiles dd.sub{font-size:.8125rem;font-weight:400;color:var(--soft);letter-spacing:0;
margin-top:.15rem}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.35rem;list-style:none;margin:0;padding:0;
font-size:.875rem}
nav a{display:inline-block;padding:.3rem 0;color:var(--soft);text-decoration:none}
nav a:hover{color:var(--ink);text-decoration:underline}
section{margin-top:2rem}
h2{margin:0 0 .85rem;font-size:1.1875rem;line-height:1.3;font-weight:650;letter-spacing:-.01em}
h3{margin:0;font-size:.9375rem;line-height:1.35;font-weight:600}
.grid2{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:1rem}
.wide{grid-column:1/-1}
.card{background:var(--card);border:1px solid var(--rule);border-radius:10px;margin:0;
padding:1rem 1.15rem .85rem;min-width:0}
section>.card+.card,.grid2+.card{margin-top:1rem}
.card>h3{margin-bottom:.6rem}
figcaption{display:flex;justify-content:space-between;align-items:flex-start;gap:.5rem 1rem;
margin-bottom:.6rem}
figcaption p{margin:.05rem 0 0;font-size:.8125rem;color:var(--soft);text-wrap:pretty}
.controls{display:flex;gap:.4rem;flex:none}
button{font:inherit;font-size:.8125rem;line-height:1.2;padding:.35rem .7rem;color:var(--ink);
background:var(--card);border:1px solid var(--rule);border-radius:6px;cursor:pointer}
button:hover{border-color:var(--soft)}
button[aria-pressed=true]{background:var(--ink);border-color:var(--ink);color:var(--card)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;list-style:none;margin:0 0 .55rem;padding:0;
font-size:.8125rem;color:var(--soft)}
.legend svg{width:24px;height:8px;margin-right:.45em;overflow:visible}
.plot{position:relative;margin:.35rem 0 1.65rem 3.6rem}
.area{position:relative;height:13.5rem;border-bottom:1px solid var(--soft);touch-action:pan-y;
cursor:crosshair}
.wide .area{height:20rem}
.area>svg,.bed>svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.ys span,.xs span{position:absolute;font-size:.75rem;line-height:1;color:var(--soft);
white-space:nowrap}
.ys{position:absolute;right:100%;top:0;bottom:0;width:3.6rem}
.ys span{right:.55rem;transform:translateY(-50%)}
.xs{position:relative;height:0}
.xs span{top:.5rem;transform:translateX(-50%)}
.xname{margin:-.3rem 0 .4rem;text-align:right;font-size:.75rem;color:var(--soft)}
svg path{fill:none;vector-effect:non-scaling-stroke}
.grid{stroke:var(--grid);stroke-width:1}
.line{stroke-width:1.75;stroke-linejoin:round;stroke-linecap:round}
.line.dashed{stroke-dasharray:5 4}
.line.mean{stroke-width:2;visibility:hidden}
.is-smooth .line.mean{visibility:visible}
.is-smooth .line.raw{opacity:.3;stroke-width:1}
.joint{stroke-width:1.25;opacity:.75}
.dots{stroke-width:6;stroke-linecap:round}
.mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:4 3}
.mark.level{stroke:var(--good);stroke-width:1.25}
path.c0{stroke:var(--c0)}path.c1{stroke:var(--c1)}path.c2{stroke:var(--c2)}
path.c3{stroke:var(--c3)}path.c4{stroke:var(--c4)}path.c5{stroke:var(--c5)}
rect.c0,.fill.c0,.dot.c0{fill:var(--c0);background:var(--c0)}
rect.c1,.fill.c1,.dot.c1{fill:var(--c1);background:var(--c1)}
rect.c2,.fill.c2,.dot.c2{fill:var(--c2);background:var(--c2)}
rect.c3,.fill.c3,.dot.c3{fill:var(--c3);background:var(--c3)}
rect.c4,.fill.c4,.dot.c4{fill:var(--c4);background:var(--c4)}
rect.c5,.fill.c5,.dot.c5{fill:var(--c5);background:var(--c5)}
rect.idle{fill:var(--grid)}
.log{display:none}.is-log .log{display:inline}.is-log .lin{display:none}
div.log,span.log{display:none}.is-log div.log,.is-log span.log{display:block}
.quantile{position:absolute;font-size:.75rem;line-height:1.3;padding:0 .3em;white-space:nowrap;
pointer-events:none;transform:translateX(.2em);color:var(--soft);background:var(--card);
border-radius:3px}
.quantile.left{transform:translateX(calc(-100% - .2em))}
.cursor{position:absolute;top:0;bottom:0;width:0;border-left:1px solid var(--soft);
pointer-events:none}
.dot{position:absolute;width:9px;height:9px;margin:-4.5px;border-radius:50%;
border:1.5px solid var(--card);pointer-events:none}
.readout{position:absolute;top:.3rem;z-index:2;padding:.4rem .6rem;background:var(--card);
border:1px solid var(--rule);border-radius:6px;box-shadow:0 2px 10px rgb(0 0 0/.14);
font-size:.8125rem;line-height:1.45;pointer-events:none;white-space:nowrap;max-width:18rem}
.readout b{display:block;font-weight:600}
.readout span{display:block;overflow:hidden;text-overflow:ellipsis}
.readout i{display:inline-block;width:.55em;height:.55em;border-radius:50%;margin-right:.45em}
.bars{width:100%;border-collapse:collapse;font-size:.875rem}
.bars th{font-weight:400;text-align:left;padding:.24rem .8rem .24rem 0;white-space:nowrap}
.bars .track{width:100%;padding:0}
.bars .fill{display:block;height:.8rem;min-width:1px;border-radius:2px}
.bars .n{padding:.24rem 0 .24rem .8rem;text-align:right;white-space:nowrap}.bars .share{color:var(--soft)}
.gantt{padding-bottom:1.75rem}
.lane{display:grid;grid-template-columns:6.5rem minmax(0,1fr);align-items:center}
.lane .name{font-size:.8125rem;color:var(--soft)}
.bed{position:relative;height:1.9rem}
.lane:last-child .xs{grid-column:2}
.scroll{overflow-x:auto}
.scroll table{border-collapse:collapse;width:100%;font-size:.875rem}
.scroll caption{text-align:left;color:var(--soft);padding:.4rem 0}
.scroll th{font-weight:500;color:var(--soft);text-align:left;vertical-align:bottom;
border-bottom:1px solid var(--rule);white-space:nowrap}
.scroll th,.scroll td{padding:.36rem .95rem .36rem 0}
.scroll td{vertical-align:top;border-bottom:1px solid var(--grid)}
.scroll tr:last-child td{border-bottom:0}
.scroll .n{text-align:right;white-space:nowrap}.scroll .n+:not(.n){padding-left:.6rem}.scroll .w{white-space:nowrap}
.scroll td{overflow-wrap:break-word}.scroll td:not(.n){max-width:34rem}
.facts{margin:0;font-size:.875rem}
.facts div{display:grid;grid-template-columns:9.5rem minmax(0,1fr);gap:1rem;padding:.34rem 0;
border-bottom:1px solid var(--grid)}
.facts div:last-child{border-bottom:0}
.facts dt{color:var(--soft)}.facts dd{margin:0;overflow-wrap:anywhere}
details{margin-top:.5rem;font-size:.875rem}
summary{cursor:pointer;color:var(--soft);font-size:.8125rem;padding:.2rem 0;width:fit-content}
summary:hover{color:var(--ink)}
details .scroll{max-height:22rem;overflow:auto}
pre{margin:.5rem 0 0;font:.8125rem/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",
monospace;overflow-x:auto;tab-size:2}
.form{display:grid;grid-template-columns:11rem minmax(0,1fr);gap:.55rem 1rem;align-items:start;
max-width:52rem}
.form.row{display:flex;flex-wrap:wrap;gap:.5rem;align-items:center;margin:.75rem 0 0;max-width:none;
font-size:.875rem}
.form label{color:var(--soft);font-size:.875rem;padding-top:.3rem}
.form.row label{padding:0}
.form>button{justify-self:start;grid-column:2}
input,select,textarea{font:inherit;font-size:.875rem;width:100%;min-width:0;padding:.35rem .55rem;
color:var(--ink);background:var(--ground);border:1px solid var(--rule);border-radius:6px}
textarea{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
resize:vertical}
.row input{width:7rem}
[id^=live-]>*+*{margin-top:1rem}
.grid2>.run:only-child{grid-column:1/-1}
.run{min-width:0}
.budget{align-items:start}
#session{margin-top:.75rem}
.run>h3{margin-bottom:.5rem}
h3 .sub{font-weight:400;color:var(--soft);margin-left:.4em}
.stale{color:var(--bad)}
.state{font-weight:600}.state.good{color:var(--good)}.state.bad{color:var(--bad)}
.state.busy{color:var(--c0)}.state.quiet{color:var(--soft)}
.do{display:flex;gap:.3rem}.do button{padding:.15rem .45rem}
.note,.empty{margin:.4rem 0;font-size:.8125rem;color:var(--soft)}
footer:empty{display:none}
footer{margin-top:2.5rem;padding-top:1rem;border-top:1px solid var(--rule);color:var(--soft);
font-size:.8125rem}
@media (max-width:46rem){
.page{padding:1.25rem 1rem 2rem}
.grid2{grid-template-columns:minmax(0,1fr)}
.tiles{grid-template-columns:repeat(2,minmax(0,1fr))}
.tiles>div{padding:.75rem .9rem}.tiles dd{font-size:1.25rem}
.card{padding:.85rem .9rem .7rem}
.wide .area,.area{height:13rem}
.plot{margin-left:3rem}.ys{width:3rem}
.xs span:nth-child(even){display:none}
.facts div{grid-template-columns:7.5rem minmax(0,1fr)}
.form{grid-template-columns:minmax(0,1fr)}.form>button{grid-column:1}
.lane{grid-template-columns:5.2rem minmax(0,1fr)}
figcaption{flex-wrap:wrap}
nav ul{gap:0 1.1rem}
}
@media print{.page{max-width:none;padding:0}button,nav,.skip{display:none}
.card,.tiles{break-inside:avoid}body{background:none}}
)css";

#undef TUTTI_DARK_COLORS

}  // namespace

std::string_view page_style() { return kStyle; }

}  // namespace tutti::report
