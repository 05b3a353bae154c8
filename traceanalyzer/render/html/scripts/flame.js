(() => {
  const { data, made, time, share } = ta;
  // -- flame graph -------------------------------------------------------------------------------------
  const ROW = 21;
  const [NAME, KIND, NS, COUNT, INSIDE] = [0, 1, 2, 3, 4];
  const LEAST = 0.0025; // of the width: narrower frames are not drawn
  const NAMES = ["GPU time", "CPU time of all threads", "idle time"];
  // The same time by op alone: each op once, below it the kernels, calls or causes that have its time.
  const byOp = ({ kinds, root }) => {
    const [op, tops] = [kinds.indexOf("op"), new Map()];
    const entry = (found, node) => {
      if (!found.has(node[NAME])) found.set(node[NAME], { node: [node[NAME], node[KIND], 0, 0, []], inside: new Map() });
      return found.get(node[NAME]);
    };
    const add = (one, ns, count) => { one.node[NS] += ns; one.node[COUNT] += count; };
    const walk = (node, around) => {
      const own = node[KIND] === op ? node : around;
      const rest = node[NS] - node[INSIDE].reduce((sum, one) => sum + one[NS], 0);
      if (rest > 0 && node !== root) {
        const top = entry(tops, own ?? node);
        add(top, rest, node[COUNT]);
        if (own && own !== node) add(entry(top.inside, node), rest, node[COUNT]);
      }
      for (const one of node[INSIDE]) walk(one, own);
    };
    walk(root, null);
    const sorted = (found) => [...found.values()].sort((one, other) => other.node[NS] - one.node[NS])
      .map(({ node, inside }) => { node[INSIDE] = sorted(inside); return node; });
    return [root[NAME], root[KIND], root[NS], root[COUNT], sorted(tops)];
  };
  const drawFlame = (box, given) => {
    const first = given.findIndex(Boolean);
    let [{ names, shorts, told: others, kinds, root: whole }, of] = [given[first], NAMES[first]];
    const by = box.querySelector(".by");
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
    // As it is written anywhere on the page; of a name without its middle both ends.
    const matches = (name) => {
      const [full, short] = [names[name], shorts[name]];
      const texts = [full, short, others[name] ?? "", ta.shortName(full)];
      if (texts.some((text) => text.toLowerCase().includes(wanted))) return true;
      const [head, tail] = full.toLowerCase().split("…");
      return tail !== undefined && wanted.startsWith(head) && wanted.endsWith(tail);
    };
    let hits = new Set();
    const hit = (node) => hits.has(node[NAME]);

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
      hits = new Set(wanted ? [...names.keys()].filter(matches) : []);
      draw();
      const nodes = wanted ? matched(whole) : [];
      const ns = nodes.reduce((sum, node) => sum + node[NS], 0);
      found.textContent = wanted ? `${nodes.length} frame${nodes.length === 1 ? "" : "s"} found: ${time(ns)}, ${share(ns, whole[NS])} of ${of}` : "";
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
    which.value = String(first);
    const chosen = () => {
      const i = Number(which.value);
      ({ names, shorts, told: others, kinds, root: whole } = given[i]);
      if (by.value === "op") whole = byOp(given[i]);
      of = NAMES[i];
      know();
      zoomed = whole;
      told.textContent = hint;
      find();
    };
    which.addEventListener("change", chosen);
    by.addEventListener("change", chosen);
    draw();
  };
  ta.flames = (async () => {
    const others = await ta.unpacked(document.getElementById("flames").textContent);
    for (const box of document.querySelectorAll(".flame")) {
      const i = Number(box.dataset.flame);
      drawFlame(box, [data.flames[i], ...others[i]]);
    }
  })();
})();
