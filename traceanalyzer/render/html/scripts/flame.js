// The flame graph: regions of the code by the CPU's, the GPU's or idle time; a click zooms and moves the timeline along.
(() => {
  const { made, time, share } = ta;
  const ROW = 21;
  const [NAME, KIND, CPU, GPU, IDLE, CALLS, START, LENGTH, INSIDE] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
  const COSTS = { gpu: [GPU, "GPU time"], cpu: [CPU, "CPU time"], idle: [IDLE, "idle time of the GPU"] };
  const LEAST = 0.0025; // of the width: narrower frames are not drawn
  const THIN = 0.02; // of the width: no room for letters
  const HINT = "Click or Enter zooms in and moves the timeline along, Escape shows all, arrow keys move.";

  const driven = (box, { names, kinds, root: whole }) => {
    const part = (name) => box.querySelector(name);
    const [graph, told, leads, reset] = [".graph", ".told", ".leads", ".reset"].map(part);
    const [search, found, which, clear] = ["input", ".found", ".which", ".clear"].map(part);
    const trace = Number(box.dataset.flame);
    const above = new Map();
    const every = [whole];
    for (const node of every) for (const child of node[INSIDE]) { above.set(child, node); every.push(child); }
    let [cost, of] = COSTS[which.value];
    let zoomed = whole;
    let wanted = "";
    let frames = new Map();
    const hit = (node) => wanted !== "" && names[node[NAME]].toLowerCase().includes(wanted);

    const words = (node) => [
      names[node[NAME]],
      `${time(node[cost])}, ${share(node[cost], whole[cost])} of ${of} a step`,
      ...Object.values(COSTS).filter(([one]) => one !== cost).map(([one, name]) => `${name} ${time(node[one])}`),
      ...(node[CALLS] ? [`${Number(node[CALLS].toPrecision(3)).toLocaleString("en")} calls`] : []),
    ].join("; ");
    const frame = (node, left, width, level) => {
      const element = made("div", `f-${kinds[node[KIND]]}`, names[node[NAME]]);
      if (width < THIN) element.classList.add("thin");
      if (hit(node)) element.classList.add("hit");
      Object.assign(element.style, { left: `${100 * left}%`, width: `${100 * width}%`, top: `${ROW * level}px` });
      element.setAttribute("role", "treeitem");
      element.setAttribute("aria-level", level + 1);
      element.setAttribute("aria-label", words(node));
      element.setAttribute("aria-selected", String(node === zoomed));
      element.tabIndex = node === zoomed ? 0 : -1;
      element.frame = node;
      frames.set(node, element);
      return element;
    };
    const draw = () => {
      frames = new Map();
      const drawn = [];
      const path = [];
      for (let node = above.get(zoomed); node; node = above.get(node)) path.unshift(node);
      path.forEach((node, level) => drawn.push(frame(node, 0, 1, level)));
      let deepest = path.length;
      const inside = (node, left, width, level) => {
        drawn.push(frame(node, left, width, level));
        deepest = Math.max(deepest, level);
        let x = left;
        for (const child of [...node[INSIDE]].sort((one, other) => other[cost] - one[cost])) {
          const wide = (width * child[cost]) / Math.max(node[cost], 1);
          if (wide >= LEAST) inside(child, x, wide, level + 1);
          x += wide;
        }
      };
      inside(zoomed, 0, 1, path.length);
      graph.classList.toggle("searched", wanted !== "");
      graph.style.height = `${ROW * (deepest + 1)}px`;
      graph.replaceChildren(...drawn);
      reset.disabled = zoomed === whole;
      leads.hidden = zoomed === whole || !zoomed[LENGTH] || !ta.showPart;
    };
    const tell = (node) => { told.textContent = node === whole ? HINT : words(node); };
    const zoom = (node, focus) => {
      zoomed = node;
      draw();
      tell(node);
      if (node !== whole && node[LENGTH]) ta.showPart?.(trace, node[START], node[START] + node[LENGTH], false);
      if (focus) frames.get(node).focus({ preventScroll: true });
    };
    // What matches, each once: a match inside a match is part of it.
    const matched = (node) => (hit(node) ? [node] : node[INSIDE].flatMap(matched));
    const find = () => {
      wanted = search.value.trim().toLowerCase();
      draw();
      const nodes = matched(whole);
      const ns = nodes.reduce((sum, node) => sum + node[cost], 0);
      found.textContent = wanted ? `${nodes.length} region${nodes.length === 1 ? "" : "s"}: ${time(ns)}, ${share(ns, whole[cost])} of ${of}` : "";
      clear.hidden = !wanted;
    };
    const beside = (node, by) => {
      const siblings = (above.get(node)?.[INSIDE] ?? []).filter((one) => frames.has(one))
        .sort((one, other) => other[cost] - one[cost]);
      return siblings[siblings.indexOf(node) + by];
    };
    const keys = {
      ArrowUp: (node) => above.get(node),
      ArrowDown: (node) => node[INSIDE].find((one) => frames.has(one)),
      ArrowLeft: (node) => beside(node, -1),
      ArrowRight: (node) => beside(node, 1),
      Home: () => whole,
    };
    const target = (event) => event.target.frame;
    graph.addEventListener("click", (event) => { if (target(event)) zoom(target(event), true); });
    graph.addEventListener("pointerover", (event) => { if (target(event)) tell(target(event)); });
    graph.addEventListener("pointerleave", () => tell(zoomed));
    graph.addEventListener("focusin", (event) => { if (target(event)) tell(target(event)); });
    graph.addEventListener("keydown", (event) => {
      const node = target(event);
      if (!node) return;
      if (event.key === "Enter" || event.key === " ") zoom(node, true);
      else if (event.key === "Escape") zoom(whole, true);
      else if (event.key in keys) frames.get(keys[event.key](node))?.focus();
      else return;
      event.preventDefault();
    });
    reset.addEventListener("click", () => zoom(whole, false));
    leads.addEventListener("click", () => ta.showPart(trace, zoomed[START], zoomed[START] + zoomed[LENGTH], true));
    search.addEventListener("input", find);
    search.addEventListener("keydown", (event) => { if (event.key === "Escape") clear.click(); });
    clear.addEventListener("click", () => { search.value = ""; find(); search.focus(); });
    for (const option of which.options) option.disabled = !whole[COSTS[option.value][0]];
    if (which.selectedOptions[0].disabled) which.value = "cpu";
    const chosen = () => {
      [cost, of] = COSTS[which.value];
      find();
      tell(zoomed);
    };
    which.addEventListener("change", chosen);
    chosen();
  };
  ta.flames = (async () => {
    const every = await ta.unpacked(document.getElementById("flames").textContent);
    for (const box of document.querySelectorAll(".flame")) driven(box, every[Number(box.dataset.flame)]);
  })();
})();
