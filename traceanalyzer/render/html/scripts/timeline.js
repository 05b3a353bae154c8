// Moving in the timeline: by mouse, by keyboard, by buttons, and from findings, steps and ops.
(() => {
  const LEAST = 400; // ns, the shortest part that can be looked at
  const CLOSE = 20_000; // ns at least around an occurrence
  const timelines = [];
  const driven = (box, packed) => {
    const model = ta.timelineModel(packed);
    const view = box.querySelector(".tl-view");
    const panel = box.querySelector(".tl-panel");
    const pick = box.querySelector(".tl-pick");
    const count = box.querySelector(".tl-count");
    const [over, main] = [box.querySelector(".tl-over canvas"), view.querySelector("canvas")];
    const state = { over, main, low: model.from, high: model.to, event: -1, mark: -1, place: -1 };
    const drawing = ta.timelineDrawing(box, model);
    let waiting = false;
    const draw = () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; drawing.drawOver(state); drawing.drawMain(state); });
    };
    const look = (low, high) => {
      const wide = Math.min(Math.max(high - low, LEAST), model.to - model.from);
      const begin = Math.min(Math.max((low + high - wide) / 2, model.from), model.to - wide);
      [state.low, state.high] = [begin, begin + wide];
      view.dataset.low = String(Math.round(begin));
      view.dataset.high = String(Math.round(begin + wide));
      draw();
    };
    const zoom = (by, at = (state.low + state.high) / 2) =>
      look(at - (at - state.low) * by, at + (state.high - at) * by);
    const pan = (by) => look(state.low + by * (state.high - state.low), state.high + by * (state.high - state.low));
    const seen = (i) => {
      const wide = Math.max(state.high - state.low, 1);
      if (model.start[i] < state.high && model.end[i] > state.low) return;
      look(model.start[i] - wide / 2, model.start[i] + wide / 2);
    };
    const go = {
      event: (i) => {
        state.event = i;
        seen(i);
        tell(state);
        draw();
      },
      mark: (k, place) => {
        const mark = model.marks[k];
        [state.mark, state.place, state.event] = [k, place, mark.e[place]];
        const [low, high] = [mark.s[place], mark.s[place] + mark.t[place]];
        const pad = Math.max((high - low) * 0.5, CLOSE / 2);
        let [from, to] = [low - pad, high + pad];
        const i = mark.e[place];
        if (i >= 0 && Math.abs(model.start[i] - low) < 40 * (to - from)) {
          from = Math.min(from, model.start[i] - pad / 2);
          to = Math.max(to, Math.min(model.end[i], model.start[i] + 4 * (high - low + pad)) + pad / 2);
        }
        look(from, to);
        told();
        tell(state);
      },
    };
    const tell = ta.timelinePanel(panel, model, go);
    const told = () => {
      const mark = model.marks[state.mark];
      pick.value = String(state.mark);
      count.textContent = mark ? `${mark.j[state.place] + 1} of ${mark.count.toLocaleString("en")}` : "";
      for (const button of box.querySelectorAll("[data-do=previous], [data-do=next]")) button.disabled = !mark;
    };
    const along = (by) => {
      if (state.mark < 0 && model.marks.length) return go.mark(0, 0);
      const mark = model.marks[state.mark];
      if (mark) go.mark(state.mark, (state.place + by + mark.s.length) % mark.s.length);
      return undefined;
    };
    const chosen = () => {
      const i = state.event;
      if (i < 0) return;
      const pad = Math.max(model.end[i] - model.start[i], LEAST);
      look(model.start[i] - pad, model.end[i] + pad);
    };
    const actions = {
      in: () => zoom(0.5), out: () => zoom(2), left: () => pan(-0.4), right: () => pan(0.4),
      whole: () => look(model.from, model.to), event: chosen, next: () => along(1), previous: () => along(-1),
    };
    for (const button of box.querySelectorAll("[data-do]")) {
      button.addEventListener("click", () => actions[button.dataset.do]());
    }
    pick.addEventListener("change", () => { if (pick.value !== "-1") go.mark(Number(pick.value), 0); });

    // -- keyboard ----------------------------------------------------------------------------------------
    const moved = (i) => { if (i >= 0) go.event(i); };
    const other = (i) => (model.isWork(i) ? model.ev.p[i] : (model.works.get(i) ?? [-1])[0]);
    const middle = () => {
      const at = (state.low + state.high) / 2;
      for (const [list] of model.levels) {
        const i = list?.[model.after(list, at)];
        if (i !== undefined) return i;
      }
      return -1;
    };
    const near = (step) => (state.event < 0 ? middle() : step(state.event));
    const keys = {
      n: actions.next, p: actions.previous, w: actions.in, s: actions.out, a: actions.left, d: actions.right,
      "+": actions.in, "-": actions.out, 0: actions.whole, f: actions.event,
      ArrowRight: () => moved(near((i) => model.beside(i, 1))),
      ArrowLeft: () => moved(near((i) => model.beside(i, -1))),
      ArrowUp: () => moved(near((i) => model.parent(i))),
      ArrowDown: () => moved(near((i) => (model.isWork(i) ? -1 : model.child(i)))),
      Enter: () => moved(near(other)),
      Escape: () => { state.event = -1; tell(state); draw(); },
    };
    view.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const digit = Number(event.key);
      if (digit >= 1 && digit <= model.marks.length) go.mark(digit - 1, 0);
      else if (event.key in keys) keys[event.key]();
      else return;
      event.preventDefault();
    });

    // -- mouse -------------------------------------------------------------------------------------------
    const inside = (canvas, event) => {
      const at = canvas.getBoundingClientRect();
      return [event.clientX - at.left, event.clientY - at.top, at.width];
    };
    view.addEventListener("wheel", (event) => {
      if (!(event.ctrlKey || event.metaKey || document.activeElement === view)) return;
      event.preventDefault();
      const [x, , width] = inside(main, event);
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / width);
      else zoom(Math.exp(Math.sign(event.deltaY) * 0.25), state.low + (x / width) * (state.high - state.low));
    }, { passive: false });
    let held = null;
    main.addEventListener("pointerdown", (event) => {
      main.setPointerCapture(event.pointerId);
      const [x, y] = inside(main, event);
      held = { x, y, low: state.low, high: state.high, moved: false };
    });
    main.addEventListener("pointermove", (event) => {
      const [x, y, width] = inside(main, event);
      if (held) {
        held.moved ||= Math.abs(x - held.x) > 3;
        const by = ((held.x - x) / width) * (held.high - held.low);
        if (held.moved) look(held.low + by, held.high + by);
        return;
      }
      const { event: i } = drawing.hit(state, x, y);
      if (i >= 0) ta.showAt(event.clientX, event.clientY, `${model.name(i)}, ${drawing.time(model.end[i] - model.start[i])}`);
      else ta.hide();
    });
    main.addEventListener("pointerup", (event) => {
      const [x, y] = inside(main, event);
      if (held && !held.moved) {
        const place = drawing.hit(state, x, y);
        state.event = place.event;
        tell(state, place);
        draw();
      }
      held = null;
    });
    main.addEventListener("pointerleave", ta.hide);
    let begun = null;
    const instant = (event) => {
      const [x, y, width] = inside(over, event);
      return [model.from + (Math.min(Math.max(x / width, 0), 1)) * (model.to - model.from), y, x];
    };
    over.addEventListener("pointerdown", (event) => { over.setPointerCapture(event.pointerId); begun = instant(event); });
    over.addEventListener("pointermove", (event) => {
      if (!begun) return;
      const [at, , x] = instant(event);
      if (Math.abs(x - begun[2]) > 4) look(Math.min(at, begun[0]), Math.max(at, begun[0]));
    });
    over.addEventListener("pointerup", (event) => {
      if (!begun) return;
      const [at, y, x] = instant(event);
      if (Math.abs(x - begun[2]) <= 4) {
        const k = drawing.markAt(y);
        if (k >= 0) go.mark(k, nearest(model.marks[k], at));
        else look(at - (state.high - state.low) / 2, at + (state.high - state.low) / 2);
      }
      begun = null;
    });
    const nearest = (mark, at) => mark.s.reduce((best, begin, q) => (Math.abs(begin - at) < Math.abs(mark.s[best] - at) ? q : best), 0);

    new ResizeObserver(draw).observe(view);
    ta.onTheme(() => { drawing.forget(); draw(); });
    told();
    tell(state);
    look(model.from, model.to);
    return { box, model, view, go, look };
  };

  // -- what leads here: `#at-2-3` is the third occurrence of finding 2, `#step-0-17` step 17 of the first trace --
  const shown = (timeline) => {
    for (const one of timelines) one.box.hidden = one !== timeline;
    const choice = document.getElementById("timeline-trace");
    if (choice) choice.value = String(timelines.indexOf(timeline));
  };
  const follow = (hash, focus) => {
    const [, what, first, second] = /^#(at|step)-(\d+)-(-?\d+)$/.exec(hash) ?? [];
    if (!what) return;
    const found = timelines.find((one, i) =>
      (what === "at" ? one.model.marks.some((mark) => mark.f === first - 1) : i === Number(first)));
    if (!found) return;
    shown(found);
    if (what === "at") {
      const k = found.model.marks.findIndex((mark) => mark.f === first - 1);
      const place = found.model.marks[k].j.indexOf(second - 1);
      found.go.mark(k, Math.max(place, 0));
    } else {
      const step = found.model.steps.find(([number]) => number === Number(second));
      if (step) found.look(step[1], step[2]);
    }
    if (focus) {
      found.box.closest("section").scrollIntoView({ block: "start" });
      found.view.focus({ preventScroll: true });
    }
  };
  // The devices of all ranks one above the other, on the axis of each, as far as their clocks are known.
  const side = (all) => {
    const own = all.map((one) => one.over.map((over) => ({ ...over, from: one.from, to: one.to, rank: one.rank, waits: one.waits })));
    all.forEach((one, i) => {
      const others = one.shift === null ? [] : all.flatMap((other, j) => {
        if (j === i || other.shift === null) return [];
        const by = other.shift - one.shift;
        return own[j].slice(0, 1).map((over) => ({
          ...over, from: over.from + by, to: over.to + by, waits: over.waits.map(([start, ns, last]) => [start + by, ns, last]),
        }));
      });
      one.over = [...own[i], ...others.slice(0, 7)];
    });
  };
  const begin = async () => {
    const boxes = [...document.querySelectorAll(".tl")];
    const packed = document.getElementById("timelines");
    if (!packed || !boxes.length) return;
    const all = await ta.unpacked(packed.textContent);
    side(all);
    boxes.forEach((box, i) => timelines.push(driven(box, all[i])));
    shown(timelines[Math.max(all.findIndex((one) => one.first), 0)]);
    document.getElementById("timeline-trace")?.addEventListener("change", (event) => shown(timelines[Number(event.target.value)]));
    addEventListener("hashchange", () => follow(location.hash, true));
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-at]");
      if (!link) return;
      event.preventDefault();
      if (location.hash === link.dataset.at) follow(link.dataset.at, true);
      else location.hash = link.dataset.at;
    });
    follow(location.hash, true);
    document.documentElement.dataset.timeline = "ready";
  };
  begin();
})();
