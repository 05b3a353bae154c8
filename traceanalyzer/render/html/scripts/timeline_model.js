// The timeline's data as arrays, and what can be asked of it. Times are ns since the trace's first event.
ta.timelineModel = (packed) => {
  const { ev: columns, tracks, texts, kinds } = packed;
  const size = columns.n.length;
  const start = new Float64Array(size);
  const end = new Float64Array(size);
  const id = new Float64Array(size);
  const trackOf = new Uint16Array(size);
  const levels = [];
  tracks.forEach(([, , , count, first, length], position) => {
    const own = Array.from({ length: count }, () => []);
    let at = 0;
    let event = 0;
    for (let i = first; i < first + length; i += 1) {
      at += columns.s[i];
      event += columns.e[i];
      start[i] = at;
      end[i] = at + columns.d[i];
      id[i] = event;
      trackOf[i] = position;
      own[columns.l[i]].push(i);
    }
    levels.push(own);
  });
  const works = new Map(); // launch -> what it started
  columns.p.forEach((launch, work) => {
    if (launch >= 0) works.set(launch, [...(works.get(launch) ?? []), work]);
  });
  for (const mark of packed.marks) {
    let at = 0;
    mark.s = mark.s.map((by) => { at += by; return at; });
  }
  const text = (code) => (code < 0 ? "" : texts[code]);
  // The first of these events (by start, none over another) that ends after an instant.
  const after = (list, instant) => {
    let low = 0;
    let high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (end[list[middle]] > instant) high = middle;
      else low = middle + 1;
    }
    return low;
  };
  const parent = (i) => {
    for (let level = columns.l[i] - 1; level >= 0; level -= 1) {
      const list = levels[trackOf[i]][level];
      const found = list[after(list, start[i])];
      if (found !== undefined && start[found] <= start[i] && end[found] >= end[i]) return found;
    }
    return -1;
  };
  const child = (i) => {
    const list = levels[trackOf[i]][columns.l[i] + 1];
    const found = list && list[after(list, start[i])];
    return found !== undefined && start[found] < end[i] ? found : -1;
  };
  const beside = (i, by) => {
    const list = levels[trackOf[i]][columns.l[i]];
    return list[list.indexOf(i) + by] ?? -1;
  };
  // All events that overlap [low, high), by track and start.
  const between = (low, high) => levels.flatMap((lists) => lists.flatMap((list) => {
    const found = [];
    for (let n = after(list, low); n < list.length && start[list[n]] < high; n += 1) found.push(list[n]);
    return found;
  }).sort((one, other) => start[one] - start[other]));
  // Events whose names, op or shapes hold a text, by start.
  const holding = (wanted) => {
    const codes = new Set([...texts.keys()].filter((code) => texts[code].toLowerCase().includes(wanted)));
    const found = Array.from({ length: size }, (_, i) => i).filter((i) => codes.has(columns.n[i]));
    return found.sort((one, other) => start[one] - start[other]);
  };
  return {
    between, holding,
    ...packed, size, start, end, id, trackOf, levels, works, text, after, parent, child, beside,
    name: (i) => text(columns.n[i]),
    // What an op started, or without work its calls.
    ofOp: (name) => {
      const code = texts.indexOf(name);
      const every = code < 0 ? [] : Array.from({ length: size }, (_, i) => i);
      const work = every.filter((i) => columns.o[i] === code && tracks[trackOf[i]][0] === "stream");
      const found = work.length ? work : every.filter((i) => columns.n[i] === code);
      return found.sort((one, other) => start[one] - start[other]);
    },
    kind: (i) => kinds[columns.k[i]],
    isWork: (i) => tracks[trackOf[i]][0] === "stream",
    trackName: ([kind, device, number]) =>
      (kind === "stream" ? `GPU ${device}, stream ${number}` : `CPU thread ${number}`),
  };
};
// A name without what all names of its kind begin with; of a kernel its own name and what it applies.
ta.shortName = (name) => {
  const wrapped = /cutlass::Kernel2?<\s*([\w:]+)/.exec(name);
  if (wrapped) return wrapped[1];
  const kernel = /^void (?:[\w:]|\(anonymous namespace\)::)*?(\w+)(?=[<(])/.exec(name);
  if (!kernel) return name.replaceAll("(anonymous namespace)::", "").replace(/^autograd::engine::evaluate_function: /, "");
  const rest = name.slice(kernel[0].length);
  const inner = /\b(\w+?)(?:_cuda)?\(at::TensorIteratorBase/.exec(rest) ?? /\b(\w*?(?:Functor|ReduceOp|Ops)\w*)/.exec(rest);
  return inner ? `${kernel[1]}(${inner[1]})` : kernel[1];
};
// The devices of all ranks one above the other, on the axis of each, as far as their clocks are known.
ta.besideOneAnother = (all) => {
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
