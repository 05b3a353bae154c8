(() => {
  const { data, made, time, share } = ta;
  // -- flame graph -------------------------------------------------------------------------------------
  const ROW = 21;
  const [NAME, KIND, NS, COUNT, INSIDE] = [0, 1, 2, 3, 4];
  const LEAST = 0.0025; // of the width: narrower frames are not drawn
  const NAMES = ["GPU time", "CPU time of all threads", "idle time"];
  const drawFlame = (box, given) => {
    let [{ names, shorts, kinds, root: whole }, of] = [given[0], NAMES[0]];
    const graph = box.querySelector(".graph");
    const told = box.querySelector(".told");
    const reset = box.querySelector(".reset");
    const search = box.querySelector("input");
    const found = box.querySelector(".found");
    const hint = told.textContent;
    const which = box.querySelector(".which");
    const clear = box.querySelector(".clear");
    let above = new Map();
    const know = () => {
      above = new Map();
      const order = [whole];
      for (const node of order) for (const child of node[INSIDE]) { above.set(child, node); order.push(child); }
    };
    know();
    let zoomed = whole;
    let wanted = "";
    let frames = new Map();

    const words = (node) =>
      `${names[node[NAME]]}, ${time(node[NS])}, ${share(node[NS], whole[NS])} of ${of}, ${node[COUNT].toLocaleString("en")} times`;
    const hit = (node) => wanted !== "" && names[node[NAME]].toLowerCase().includes(wanted);

    const frame = (node, left, width, level) => {
      const element = made("div", `f-${kinds[node[KIND]]}`, shorts[node[NAME]]);
      if (width < 0.02) element.classList.add("thin");
      if (hit(node)) element.classList.add("hit");
      element.style.left = `${100 * left}%`;
      element.style.width = `${100 * width}%`;
      element.style.top = `${ROW * level}px`;
      element.setAttribute("role", "treeitem");
      element.setAttribute("aria-level", level + 1);
      // What is written stands in the name that is read out, too.
      const [full, short] = [names[node[NAME]], shorts[node[NAME]]];
      element.setAttribute("aria-label", full.includes(short) ? words(node) : `${short}, ${words(node)}`);
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
        for (const child of node[INSIDE]) {
          const part = (width * child[NS]) / Math.max(node[NS], 1);
          if (part >= LEAST) inside(child, x, part, level + 1);
          x += part;
        }
      };
      inside(zoomed, 0, 1, path.length);
      graph.classList.toggle("searched", wanted !== "");
      graph.style.height = `${ROW * (deepest + 1)}px`;
      graph.replaceChildren(...drawn);
      reset.disabled = zoomed === whole;
    };
    const zoom = (node, focus) => {
      zoomed = node;
      draw();
      told.textContent = words(node);
      if (focus) frames.get(node).focus();
    };
    // What matches, each once: a match inside a match is part of it.
    const matched = (node) => (hit(node) ? [node] : node[INSIDE].flatMap(matched));
    const find = () => {
      wanted = search.value.trim().toLowerCase();
      draw();
      const nodes = wanted ? matched(whole) : [];
      const ns = nodes.reduce((sum, node) => sum + node[NS], 0);
      found.textContent = wanted ? `${nodes.length} frames found: ${time(ns)}, ${share(ns, whole[NS])} of ${of}` : "";
      clear.hidden = !wanted;
    };
    const beside = (node, by) => {
      const siblings = above.get(node)?.[INSIDE] ?? [];
      return siblings[siblings.indexOf(node) + by];
    };
    const target = (event) => event.target.frame;
    const keys = {
      ArrowUp: (node) => above.get(node),
      ArrowDown: (node) => node[INSIDE][0],
      ArrowLeft: (node) => beside(node, -1),
      ArrowRight: (node) => beside(node, 1),
      Home: () => whole,
    };
    graph.addEventListener("click", (event) => { if (target(event)) zoom(target(event), true); });
    graph.addEventListener("pointerover", (event) => { if (target(event)) told.textContent = words(target(event)); });
    graph.addEventListener("pointerleave", () => { told.textContent = zoomed === whole ? hint : words(zoomed); });
    graph.addEventListener("focusin", (event) => { if (target(event)) told.textContent = words(target(event)); });
    graph.addEventListener("keydown", (event) => {
      const node = target(event);
      if (!node) return;
      if (event.key === "Enter" || event.key === " ") zoom(node, true);
      else if (event.key === "Escape") zoom(whole, true);
      else if (event.key in keys) {
        const next = frames.get(keys[event.key](node));
        if (next) next.focus();
      } else return;
      event.preventDefault();
    });
    reset.addEventListener("click", () => { zoom(whole, false); told.textContent = hint; });
    search.addEventListener("input", find);
    search.addEventListener("keydown", (event) => { if (event.key === "Escape") clear.click(); });
    clear.addEventListener("click", () => { search.value = ""; find(); search.focus(); });
    [...which.options].forEach((option, i) => { option.disabled = !given[i]; });
    which.addEventListener("change", () => {
      const i = Number(which.value);
      ({ names, shorts, kinds, root: whole } = given[i]);
      of = NAMES[i];
      know();
      zoomed = whole;
      told.textContent = hint;
      find();
    });
    draw();
  };
  const begin = async () => {
    const others = await ta.unpacked(document.getElementById("flames").textContent);
    for (const box of document.querySelectorAll(".flame")) {
      const i = Number(box.dataset.flame);
      if (data.flames[i]) drawFlame(box, [data.flames[i], ...others[i]]);
    }
    document.documentElement.dataset.flames = "ready";
  };
  begin();
})();
