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
    const state = { over, main, low: model.from, high: model.to, event: -1, mark: -1, place: -1, found: null, area: null };
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
    // An occurrence with its event, and some room on either side.
    const around = (k, place) => {
      const mark = model.marks[k];
      const [low, high] = [mark.s[place], mark.s[place] + mark.t[place]];
      const pad = Math.max((high - low) * 0.5, CLOSE / 2);
      let [from, to] = [low - pad, high + pad];
      const i = mark.e[place];
      if (i >= 0 && Math.abs(model.start[i] - low) < 40 * (to - from)) {
        from = Math.min(from, model.start[i] - pad / 2);
        to = Math.max(to, Math.min(model.end[i], model.start[i] + 4 * (high - low + pad)) + pad / 2);
      }
      return [from, to];
    };
    const go = {
      event: (i) => {
        state.event = i;
        seen(i);
        tell(state);
        draw();
      },
      mark: (k, place) => {
        [state.mark, state.place, state.event, state.found] = [k, place, model.marks[k].e[place], null];
        look(...around(k, place));
        told();
        tell(state);
      },
      // One after the other of some events of one name.
      found: (name, events, place, wanted) => {
        [state.mark, state.place, state.event, state.found] = [-1, -1, events[place], { name, events, place, wanted }];
        const i = state.event;
        const pad = Math.max(2 * (model.end[i] - model.start[i]), CLOSE);
        look(model.start[i] - pad, model.end[i] + pad);
        told();
        tell(state);
      },
      part: (low, high, place) => {
        [state.mark, state.place, state.event, state.found] = [-1, -1, -1, null];
        look(low, high);
        told();
        tell(state, place);
      },
      // Sums by name and a list of what lies in a part.
      area: (low, high) => {
        [state.area, state.event] = [[low, high], -1];
        tell(state, { low, high });
        draw();
      },
    };
    const tell = ta.timelinePanel(panel, model, go);
    const told = () => {
      const mark = model.marks[state.mark];
      const found = state.found;
      pick.value = String(state.mark);
      count.textContent = mark ? `${mark.j[state.place] + 1} of ${mark.count.toLocaleString("en")}`
        : found ? `${found.place + 1} of ${found.events.length} kept` : "";
      for (const button of box.querySelectorAll("[data-do=previous], [data-do=next]")) button.disabled = !(mark || found);
    };
    const along = (by) => {
      if (state.found) {
        const { name, events, place, wanted } = state.found;
        return go.found(name, events, (place + by + events.length) % events.length, wanted);
      }
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
    const search = box.querySelector("input");
    const find = (by) => {
      const wanted = search.value.trim().toLowerCase();
      if (!wanted) return;
      if (state.found?.wanted === wanted) along(by);
      else {
        const events = model.holding(wanted);
        if (events.length) go.found(search.value.trim(), events, 0, wanted);
        else { go.part(state.low, state.high); count.textContent = "none kept"; }
      }
    };
    search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") find(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") view.focus({ preventScroll: true });
    });
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
      m: () => go.area(state.low, state.high),
      "/": () => search.focus(),
      Escape: () => { [state.event, state.area] = [-1, null]; tell(state); draw(); },
    };
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return false;
      const numbered = model.marks.findIndex((mark) => String(mark.f + 1) === event.key);
      if (numbered >= 0) go.mark(numbered, 0);
      else if (event.key in keys) keys[event.key]();
      else return false;
      event.preventDefault();
      return true;
    };
    view.addEventListener("keydown", press);

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
    const selecting = box.querySelector(".tl-select");
    main.addEventListener("pointerdown", (event) => {
      main.setPointerCapture(event.pointerId);
      const [x, y] = inside(main, event);
      held = { x, y, low: state.low, high: state.high, moved: false, selects: event.shiftKey || selecting.checked };
    });
    main.addEventListener("pointermove", (event) => {
      const [x, y, width] = inside(main, event);
      if (held) {
        held.moved ||= Math.abs(x - held.x) > 3;
        const by = ((held.x - x) / width) * (held.high - held.low);
        if (!held.moved) return;
        if (!held.selects) look(held.low + by, held.high + by);
        else {
          const [left, right] = [held.x, x].sort((one, other) => one - other)
            .map((at) => state.low + (Math.min(Math.max(at, 0), width) / width) * (state.high - state.low));
          state.area = [left, right];
          draw();
        }
        return;
      }
      const { event: i } = drawing.hit(state, x, y);
      if (i >= 0) ta.showAt(event.clientX, event.clientY, `${model.name(i)}, ${drawing.time(model.end[i] - model.start[i])}`);
      else ta.hide();
    });
    main.addEventListener("pointerup", (event) => {
      const [x, y] = inside(main, event);
      if (held?.moved && held.selects) go.area(...state.area);
      if (held && !held.moved) {
        const place = drawing.hit(state, x, y);
        if (place.heading !== undefined) drawing.fold(place.heading);
        [state.event, state.found, state.area] = [place.event, null, null];
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
    const nowhere = (name) => {
      go.part(model.from, model.to);
      panel.replaceChildren(ta.made("p", "note", `No occurrence of ${name} is among the events that this page keeps.`));
    };
    // An occurrence on a canvas of its own.
    const picture = (canvas, k, place) => {
      const [low, high] = around(k, place);
      drawing.drawMain({ main: canvas, low, high, event: model.marks[k].e[place], mark: k, place, picture: true });
    };
    return { box, model, view, go, nowhere, press, search, picture };
  };

  // -- what leads here: `#at-2-3` is the third occurrence of finding 2, `#step-0-17` step 17 of the first trace,
  // `#of-0-4` the fifth row of its table of ops, `#span-0-1-500-900` a stretch on device 1
  // One at a time, made when it is first looked at.
  const boxes = [...document.querySelectorAll(".tl")];
  let every = [];
  const shown = (i) => {
    boxes.forEach((box, k) => { box.hidden = k !== i; });
    const choice = document.getElementById("timeline-trace");
    if (choice) choice.value = String(i);
    timelines[i] ??= driven(boxes[i], every[i]);
    return timelines[i];
  };
  const marksOf = (found, first, second) => {
    const k = found.model.marks.findIndex((mark) => mark.f === first - 1);
    return [k, Math.max(found.model.marks[k].j.indexOf(second - 1), 0)];
  };
  const places = {
    at: (found, first, second) => found.go.mark(...marksOf(found, first, second)),
    step: (found, _, number) => {
      const step = found.model.steps.find(([one]) => one === number);
      if (step) found.go.part(step[1], step[2], { step: number });
    },
    of: (found, trace, row) => {
      const { name } = document.getElementById(`op-${trace}-${row}`).dataset;
      const events = found.model.ofOp(name);
      if (events.length) found.go.found(name, events, 0);
      else found.nowhere(name);
    },
    span: (found, _, device, low, high) => {
      const track = found.model.tracks.findIndex(([kind, one]) => kind === "stream" && one === device);
      const pad = (high - low) / 4;
      found.go.part(low - pad, high + pad, { track, at: (low + high) / 2 });
    },
  };
  const reach = (found) => {
    found.box.closest("section").scrollIntoView({ block: "start" });
    found.view.focus({ preventScroll: true });
  };
  const follow = (hash, focus = true) => {
    const [, what, ...rest] = /^#(at|step|of|span)-(\d+)-(-?\d+)(?:-(\d+)-(\d+))?$/.exec(hash) ?? [];
    if (!what) return;
    const [first, ...others] = rest.filter((one) => one !== undefined).map(Number);
    const place = every.findIndex((one) =>
      (what === "at" ? one.marks.some((mark) => mark.f === first - 1) : one.trace === first));
    if (place < 0) return;
    const found = shown(place);
    places[what](found, first, ...others);
    if (focus) reach(found);
  };
  // At once: a change of location.hash is heard later, after further keys.
  ta.follow = (hash) => {
    if (location.hash !== hash) history.pushState(null, "", hash);
    follow(hash);
  };
  // The pictures in open cards, each drawn when it is first seen, and when its width or the colors change.
  let colors = 0;
  const pictures = () => {
    // Details that stand open report it before the data is there.
    for (const canvas of every.length ? document.querySelectorAll(".picture canvas") : []) {
      const look = `${canvas.parentElement.clientWidth} ${colors}`;
      if (!canvas.parentElement.clientWidth || canvas.dataset.look === look) continue;
      canvas.dataset.look = look;
      const [first, second] = canvas.dataset.at.match(/\d+/g).map(Number);
      const place = every.findIndex((one) => one.marks.some((mark) => mark.f === first - 1));
      canvas.parentElement.hidden = place < 0;
      if (place < 0) continue;
      timelines[place] ??= driven(boxes[place], every[place]);
      timelines[place].picture(canvas, ...marksOf(timelines[place], first, second));
    }
  };
  ta.pictures = pictures;
  // A part of a trace, by its offsets; with `focus` the page goes there, too.
  ta.showPart = (trace, low, high, focus) => {
    const place = every.findIndex((one) => one.trace === trace);
    if (place < 0) return;
    const found = shown(place);
    const pad = (high - low) / 8;
    found.go.part(low - pad, high + pad);
    if (focus) reach(found);
  };
  const begin = async () => {
    boxes.forEach((box, k) => { box.hidden = k > 0; });
    const packed = document.getElementById("timelines");
    if (!packed || !boxes.length) return;
    every = await ta.unpacked(packed.textContent);
    ta.besideOneAnother(every);
    shown(Math.max(every.findIndex((one) => one.first), 0));
    document.getElementById("timeline-trace")?.addEventListener("change", (event) => shown(Number(event.target.value)));
    addEventListener("hashchange", () => follow(location.hash));
    // Without a focus anywhere, findings and occurrences can be chosen at once.
    addEventListener("keydown", (event) => {
      if (event.target !== document.body || !/^[1-9np/]$/.test(event.key)) return;
      const found = timelines[boxes.findIndex((box) => !box.hidden)];
      if (!found?.press(event)) return;
      reach(found);
      if (event.key === "/") found.search.focus({ preventScroll: true });
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-at]");
      if (!link) return;
      event.preventDefault();
      ta.follow(link.dataset.at);
    });
    follow(location.hash);
    pictures();
    new ResizeObserver(pictures).observe(document.querySelector("main"));
    ta.onTheme(() => { colors += 1; pictures(); });
  };
  // What is drawn at first is there.
  Promise.all([begin(), ta.flames]).then(() => { document.documentElement.dataset.ready = "yes"; });
})();
