// The timeline on two canvases: the whole window above, the part that is looked at below.
ta.timelineDrawing = (box, model) => {
  const [RULER, STEPS, BUSY, MARKS, HEADING, LEVEL, GAP] = [20, 15, 20, 11, 17, 17, 6];
  const [UNFOLDED, FOLDED] = [2, 2]; // threads with all levels, and levels of the others
  const [OVER_BUSY, OVER_MARK] = [30, 10];
  const FEW_PARTS = 12; // of the overview: fewer say nothing of what is looked at
  const { time } = ta;
  const { ev: columns } = model;
  const looks = box.querySelector(".tl-looks");
  let known = new Map();
  const colour = (name) => {
    if (!known.has(name)) {
      const one = ta.made("i", name);
      looks.append(one);
      known.set(name, getComputedStyle(one).backgroundColor);
      one.remove();
    }
    return known.get(name);
  };
  const kindColour = (kind) => colour(`b-${/^(copy|communication)/.exec(kind)?.[0] ?? kind}`);
  const causes = model.causes; // names of idle time, the largest first
  const idleColour = (name) => colour(`i-${Math.min(Math.max(causes.indexOf(name), 0), 5)}`);
  const classColour = (name) => (name.startsWith("idle:") ? idleColour(name)
    : kindColour(name.startsWith("compute") ? "compute" : name));

  const sized = (canvas, height) => {
    const ratio = devicePixelRatio || 1;
    const width = Math.max(canvas.parentElement.clientWidth, 50);
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = `11.5px ${getComputedStyle(box).fontFamily}`;
    context.textBaseline = "middle";
    return [context, width];
  };
  const instant = (ns, step) => {
    const [scale, unit] = step >= 1e9 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : [1e3, "µs"];
    const digits = Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9));
    return `${(ns / scale).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
  };
  const ruler = (context, width, [low, high], top) => {
    const rough = (high - low) / Math.max(width / 130, 2);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((by) => by * power >= rough) * power;
    for (let at = Math.ceil(low / step) * step; at <= high; at += step) {
      const x = ((at - low) / (high - low)) * width;
      context.fillStyle = colour("t-rule");
      context.fillRect(x, top, 1, RULER);
      context.fillStyle = colour("t-soft");
      context.fillText(instant(at, step), x + 4, top + 9);
    }
  };
  // Busy above, and below why idle, of each part of the window.
  const strip = (context, width, [low, high], over, top, height) => {
    const count = over.busy.length;
    const whole = over.to - over.from;
    const first = Math.max(0, Math.floor(((low - over.from) / whole) * count));
    const last = Math.min(count, Math.ceil(((high - over.from) / whole) * count));
    const x = (part) => ((over.from + (part / count) * whole - low) / (high - low)) * width;
    for (let part = first; part < last; part += 1) {
      const left = x(part);
      const wide = x(part + 1) - left + 0.4;
      const tall = (height * over.busy[part]) / 100;
      if (over.why[part] >= 0) {
        context.fillStyle = classColour(over.names[over.why[part]]);
        context.fillRect(left, top, wide, height - tall);
      }
      if (over.doing[part] >= 0) {
        context.fillStyle = classColour(over.names[over.doing[part]]);
        context.fillRect(left, top + height - tall, wide, tall);
      }
    }
  };
  // Where a rank waits for others in collectives: over the lower half, as the kernel runs meanwhile.
  const waiting = (context, width, [low, high], over, top, height) => {
    context.fillStyle = colour("t-wait");
    for (const [start, ns] of over.waits) {
      const [left, right] = [start, start + ns].map((at) => ((at - low) / (high - low)) * width);
      if (right >= 0 && left <= width) context.fillRect(left, top + height * 0.45, Math.max(right - left, 0.7), height * 0.55);
    }
  };
  const overName = (over) => (over.rank === null ? `GPU ${over.device}` : `Rank ${over.rank}, GPU ${over.device}`);
  const marks = (context, width, [low, high], mark, top, height, chosen) => {
    let last = -9;
    for (let q = 0; q < mark.s.length; q += 1) {
      const left = ((mark.s[q] - low) / (high - low)) * width;
      const right = ((mark.s[q] + mark.t[q] - low) / (high - low)) * width;
      if (right < 0 || left > width || (right <= last && q !== chosen)) continue;
      context.fillStyle = colour(q === chosen ? "t-chosen" : `s-${mark.severity}`);
      context.fillRect(left, top, Math.max(right - left, 2), height);
      last = Math.max(right, left + 1);
    }
  };
  const stepMarks = (context, width, [low, high], top, height, named) => {
    const every = Math.ceil(model.steps.length / Math.max(width / 12, 1));
    model.steps.forEach(([number, begin, end], place) => {
      const [left, right] = [begin, end].map((at) => ((at - low) / (high - low)) * width);
      if (right < 0 || left > width || place % (named ? 1 : every)) return;
      context.fillStyle = colour("t-edge");
      context.fillRect(left, top, 1, height);
      if (named && Math.min(right, width) - Math.max(left, 0) > 50) {
        context.fillStyle = colour("t-soft");
        context.fillText(`step ${number}`, Math.max(left, 0) + 5, top + STEPS / 2);
      }
    });
  };

  // Where everything stands; a picture of a finding has no rows of devices, and no tracks without events.
  const threads = [...model.tracks.keys()].filter((k) => model.tracks[k][0] === "thread");
  const folded = new Set(threads.slice(UNFOLDED));
  const levelsOf = (k) => (folded.has(k) ? Math.min(model.tracks[k][3], FOLDED) : model.tracks[k][3]);
  const inside = (k, state) => model.levels[k].some((list) => {
    const i = list[model.after(list, state.low)];
    return i !== undefined && model.start[i] < state.high;
  });
  const layout = (state) => {
    let top = RULER + (model.steps.length ? STEPS : 0);
    const busy = (state.picture ? [] : model.over).map(() => { const at = top + HEADING; top += HEADING + BUSY + GAP; return at; });
    const mark = top;
    top += state.picture ? 0 : MARKS + GAP;
    const tops = model.tracks.map((_, k) => {
      if (state.picture && !inside(k, state)) return -1;
      const at = top + HEADING;
      top += HEADING + levelsOf(k) * LEVEL + GAP;
      return at;
    });
    return { busy, mark, tops, height: top };
  };
  const rowOf = (places, i) => places.tops[model.trackOf[i]] + Math.min(columns.l[i], levelsOf(model.trackOf[i]) - 1) * LEVEL;

  const overHeight = 12 + model.over.length * (OVER_BUSY + 2) + model.marks.length * OVER_MARK + 4;
  const markTop = (k) => 12 + model.over.length * (OVER_BUSY + 2) + k * OVER_MARK + 1;
  const drawOver = (state) => {
    const [context, width] = sized(state.over, overHeight);
    const range = [model.from, model.to];
    const x = (at) => ((at - model.from) / (model.to - model.from)) * width;
    context.fillStyle = colour("t-band");
    for (const [low, high] of model.bands) context.fillRect(x(low), 0, Math.max(x(high) - x(low), 2), overHeight);
    model.over.forEach((over, k) => {
      strip(context, width, range, over, 12 + k * (OVER_BUSY + 2), OVER_BUSY);
      waiting(context, width, range, over, 12 + k * (OVER_BUSY + 2), OVER_BUSY);
    });
    stepMarks(context, width, range, 0, 10, false);
    model.marks.forEach((mark, k) =>
      marks(context, width, range, mark, markTop(k), OVER_MARK - 3, k === state.mark ? state.place : -1));
    context.font = `9px ${getComputedStyle(box).fontFamily}`;
    model.marks.forEach((mark, k) => {
      const text = String(mark.f + 1);
      context.fillStyle = colour("t-page");
      context.fillRect(0, markTop(k) - 1, 6 * text.length + 3, OVER_MARK);
      context.fillStyle = colour("t-ink");
      context.fillText(text, 2, markTop(k) + 4);
    });
    context.font = `10px ${getComputedStyle(box).fontFamily}`;
    if (model.over.length > 1) model.over.forEach((over, k) => {
      const [text, top] = [over.rank === null ? `GPU ${over.device}` : `rank ${over.rank}`, 12 + k * (OVER_BUSY + 2)];
      context.fillStyle = colour("t-page");
      context.fillRect(0, top, 6 * text.length, 12);
      context.fillStyle = colour("t-ink");
      context.fillText(text, 2, top + 6);
    });
    const [left, right] = [x(state.low), Math.max(x(state.high), x(state.low) + 3)];
    context.fillStyle = colour("t-shade");
    context.fillRect(0, 0, left, overHeight);
    context.fillRect(right, 0, width - right, overHeight);
    context.strokeStyle = colour("t-chosen");
    context.lineWidth = 1.5;
    context.strokeRect(left, 1, right - left, overHeight - 2);
  };

  const label = (context, text, left, wide, top) => {
    const from = Math.max(left, 0);
    const room = Math.floor((left + wide - from - 6) / 6.1);
    if (room < 3) return;
    const short = ta.shortName(text);
    context.fillStyle = colour("t-ink");
    context.fillText(short.length > room ? `${short.slice(0, room - 1)}…` : short, from + 3, top + LEVEL / 2);
  };
  const drawLevel = (context, width, state, list, top, own) => {
    const scale = width / (state.high - state.low);
    for (let k = model.after(list, state.low); k < list.length; k += 1) {
      const i = list[k];
      if (model.start[i] >= state.high) break;
      const left = (model.start[i] - state.low) * scale;
      const wide = Math.max((model.end[i] - model.start[i]) * scale, 0.7);
      context.fillStyle = kindColour(model.kind(i));
      context.fillRect(left, top, Math.max(wide - 0.5, 0.7), LEVEL - 1);
      if (wide > 24) label(context, model.name(i), left, Math.min(wide, width - left), top);
      if (i === state.event || own.has(i)) {
        context.strokeStyle = colour(i === state.event ? "t-chosen" : "t-own");
        context.lineWidth = i === state.event ? 2.5 : 1.5;
        context.strokeRect(left, top + 1, Math.max(wide, 2), LEVEL - 3);
      }
      if (wide < 1) { // what follows within the same pixel would be drawn over it
        const next = model.after(list, model.start[i] + 0.7 / scale);
        k = Math.max(k, next - 1);
      }
    }
  };
  const arrows = (context, width, state, places) => {
    const scale = width / (state.high - state.low);
    const pairs = [];
    const add = (work) => { if (columns.p[work] >= 0) pairs.push([columns.p[work], work]); };
    model.tracks.forEach(([kind], k) => {
      if (kind !== "stream" || places.tops[k] < 0) return;
      const list = model.levels[k][0];
      const first = model.after(list, state.low);
      const inside = [];
      for (let n = first; n < list.length && model.start[list[n]] < state.high && inside.length < 41; n += 1) inside.push(list[n]);
      if (inside.length < 41) inside.forEach(add);
    });
    if (state.event >= 0) (model.works.get(state.event) ?? [state.event]).slice(0, 60).forEach(add);
    for (const [launch, work] of pairs) {
      const chosen = state.event === launch || state.event === work;
      context.strokeStyle = colour(chosen ? "t-chosen" : "t-edge");
      context.lineWidth = chosen ? 1.8 : 1;
      const [x1, x2] = [(model.start[launch] - state.low) * scale, (model.start[work] - state.low) * scale];
      if (Math.max(x1, x2) < 0 || Math.min(x1, x2) > width) continue;
      if (places.tops[model.trackOf[launch]] < 0) continue;
      const [y1, y2] = [rowOf(places, launch) + LEVEL - 1, rowOf(places, work)];
      context.beginPath();
      context.moveTo(x1, y1);
      context.bezierCurveTo(x1, (y1 + y2) / 2, x2, (y1 + y2) / 2, x2, y2);
      context.stroke();
    }
  };
  const drawMain = (state) => {
    const places = layout(state);
    const [context, width] = sized(state.main, places.height);
    const range = [state.low, state.high];
    const x = (at) => ((at - state.low) / (state.high - state.low)) * width;
    ruler(context, width, range, 0);
    if (model.steps.length) stepMarks(context, width, range, RULER, STEPS, true);
    const heading = (text, top) => {
      context.fillStyle = colour("t-soft");
      context.fillText(text, 2, top - HEADING / 2);
    };
    places.busy.forEach((top, k) => {
      const over = model.over[k];
      const waits = over.waits.length ? "; lower half: waits for another rank" : "";
      heading(`${overName(over)}${k ? "" : ": what runs, and why it is idle"}${waits}`, top);
      const parts = ((state.high - state.low) / (model.to - model.from)) * over.busy.length;
      if (parts >= FEW_PARTS) strip(context, width, range, over, top, BUSY);
      waiting(context, width, range, over, top, BUSY);
    });
    const mark = model.marks[state.mark];
    if (mark) {
      if (!state.picture) marks(context, width, range, mark, places.mark, MARKS, state.place);
      const here = [x(mark.s[state.place]), x(mark.s[state.place] + mark.t[state.place])];
      context.fillStyle = colour("t-here");
      context.fillRect(here[0], places.mark, Math.max(here[1] - here[0], 1), places.height - places.mark);
    }
    const own = new Set(mark ? [mark.e[state.place]] : []);
    model.tracks.forEach((track, k) => {
      const top = places.tops[k];
      if (top < 0) return;
      const height = levelsOf(k) * LEVEL - 1;
      context.fillStyle = colour("t-panel");
      context.fillRect(0, top, width, height);
      context.fillStyle = colour("t-band");
      for (const [low, high, least] of model.bands) if (!least) context.fillRect(x(low), top, x(high) - x(low), height);
      model.levels[k].slice(0, levelsOf(k)).forEach((list, level) => drawLevel(context, width, state, list, top + level * LEVEL, own));
      const sign = track[3] <= FOLDED || track[0] !== "thread" || state.picture ? "" : folded.has(k) ? "\u25b8 " : "\u25be ";
      heading(sign + model.trackName(track), top);
    });
    arrows(context, width, state, places);
    if (state.area) {
      const [left, right] = state.area.map(x);
      context.fillStyle = colour("t-here");
      context.fillRect(left, RULER, right - left, places.height);
      context.fillStyle = colour("t-chosen");
      for (const at of [left, right]) context.fillRect(at - 0.5, 0, 1, places.height);
      context.fillText(time(state.area[1] - state.area[0]), Math.min(left, width - 60) + 4, RULER + 8);
    }
  };
  // What is at a place of the lower canvas: an event, a track without one, or a track's heading.
  const hit = (state, px, py) => {
    const places = layout(state);
    const width = state.main.parentElement.clientWidth;
    const at = state.low + (px / width) * (state.high - state.low);
    const slack = (1.5 / width) * (state.high - state.low);
    for (let k = 0; k < model.tracks.length; k += 1) {
      const level = Math.floor((py - places.tops[k]) / LEVEL);
      if (level === -1) return { at, track: -1, event: -1, heading: k };
      const list = level < levelsOf(k) ? model.levels[k][level] : undefined;
      if (!list) continue;
      const i = list[model.after(list, at - slack)];
      const there = i !== undefined && model.start[i] <= at + slack;
      return { at, track: k, event: there ? i : -1 };
    }
    return { at, track: -1, event: -1 };
  };
  const fold = (k, on = !folded.has(k)) => (on ? folded.add(k) : folded.delete(k));
  const markAt = (py) => {
    const k = Math.floor((py - markTop(0)) / OVER_MARK);
    return k >= 0 && k < model.marks.length ? k : -1;
  };
  return { drawOver, drawMain, hit, fold, markAt, time, forget: () => { known = new Map(); } };
};
