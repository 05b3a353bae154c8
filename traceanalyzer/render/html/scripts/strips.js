(() => {
  const { show, hide } = ta;
  // -- strips: one stop of the tab key each, arrow keys within -----------------------------------------
  const nameOf = (bar) => {
    const title = bar.querySelector("title");
    if (title) { // the browser's own tip would stand beside ours
      bar.setAttribute("aria-label", title.textContent);
      title.remove();
    }
    return bar.getAttribute("aria-label");
  };
  const barsOf = (strip) => [...strip.querySelectorAll(".b")];
  for (const strip of document.querySelectorAll(".strip")) {
    const first = strip.querySelector(".b.own") || strip.querySelector(".b");
    if (first) first.tabIndex = 0;
    const bar = (event) => event.target.closest(".b");
    strip.addEventListener("pointerover", (event) => { if (bar(event)) show(bar(event), nameOf(bar(event))); });
    strip.addEventListener("pointerout", hide);
    strip.addEventListener("focusin", (event) => { if (bar(event)) show(bar(event), nameOf(bar(event))); });
    strip.addEventListener("focusout", hide);
    strip.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step || !bar(event)) return;
      const bars = barsOf(strip);
      const next = bars[bars.indexOf(bar(event)) + step];
      if (!next) return;
      event.preventDefault();
      bar(event).tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }
})();
