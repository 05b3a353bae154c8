// What is said of the selected event, gap or occurrence; and where one can go from there.
ta.timelinePanel = (panel, model, go) => {
  const { made, time, share } = ta;
  const [MOST_NAMES, MOST_LISTED] = [12, 200]; // lines of a table
  const { ev: columns } = model;
  const THINNED = -2; // instead of an event
  const KINDS = {
    call: "runtime call", wait: "blocking call", gemm: "GEMM or convolution", elementwise: "elementwise kernel",
    attention: "attention kernel", reduction: "reduction kernel", moving: "copying kernel", communication: "communication kernel",
  };
  const kindName = (i) => KINDS[model.kind(i)] ?? model.kind(i).replace(/_.*/, "");
  const offset = (ns) => `${(ns / 1e6).toLocaleString("en", { minimumFractionDigits: 6, maximumFractionDigits: 6 })}\u00a0ms`;
  const leading = (text, action) => {
    const button = made("button", "tl-go", text);
    button.type = "button";
    button.addEventListener("click", action);
    return button;
  };
  const rows = (list, pairs) => {
    for (const [name, ...values] of pairs) {
      const row = made("div", values.length > 2 ? "wide" : "");
      const value = made("dd");
      value.append(...values);
      row.append(made("dt", "", name), value);
      list.append(row);
    }
    return list;
  };
  const stepAt = (ns) => model.steps.find(([, begin, end]) => begin <= ns && ns < end)?.[0];
  const said = (i) => `${ta.shortName(model.name(i)).slice(0, 60)}, ${time(model.end[i] - model.start[i])}`;
  const insideOf = (i) => model.marks.flatMap((mark, k) => {
    const place = mark.s.findIndex((begin, q) => mark.e[q] === i || (begin <= model.start[i] && mark.s[q] + mark.t[q] >= model.end[i]));
    return place < 0 ? [] : [leading(`${mark.f + 1} ${mark.rule}`, () => go.mark(k, place))];
  });
  const links = (i) => {
    const launch = columns.p[i];
    if (launch >= 0) return [["launched by", leading(said(launch), () => go.event(launch))]];
    const started = model.works.get(i) ?? [];
    const shown = started.slice(0, 4).map((work) => leading(said(work), () => go.event(work)));
    const more = started.length > 4 ? [` and ${started.length - 4} more`] : [];
    return started.length ? [["started", ...shown, ...more]] : [];
  };
  const event = (i) => {
    const step = stepAt(model.start[i]);
    const delay = columns.w[i];
    const around = insideOf(i);
    const pairs = [
      ["duration", time(model.end[i] - model.start[i])],
      ["starts at", offset(model.start[i])],
      ...(step === undefined ? [] : [["step", String(step)]]),
      ["on", model.trackName(model.tracks[model.trackOf[i]])],
      ...(columns.o[i] < 0 ? [] : [["op", made("code", "", model.text(columns.o[i]))]]),
      ...(columns.h[i] < 0 ? [] : [["input shapes", made("code", "", model.text(columns.h[i]))]]),
      ...(columns.g[i] < 0 ? [] : [["launched with", model.text(columns.g[i])]]),
      ...(columns.i[i] < 0 ? [] : [["function (first line)", made("code", "", model.text(columns.i[i]))]]),
      ...(delay === null || delay === undefined ? [] : [["delay after its launch", time(delay)]]),
      ...links(i),
      ...(around.length ? [["in finding", ...around]] : []),
      ["event in the file", String(model.id[i])],
      ["Perfetto timestamp", made("code", "", timestamp(model.start[i]))],
    ];
    const title = made("p", "tl-title");
    title.append(made("span", `swatch b-${/^(copy|communication)/.exec(model.kind(i))?.[0] ?? model.kind(i)}`),
      `${kindName(i)} `, made("code", "", model.name(i)));
    return [title, rows(made("dl"), pairs)];
  };
  // Its events were left out so that the page stays small.
  const timestamp = (ns) => String(BigInt(model.origin) + BigInt(Math.round(ns)));
  const thinned = (mark, place) => {
    const note = made("p", "note", "Not in this page: thinned. To see its events: ");
    const command = document.getElementById(`finding-${mark.f + 1}`)?.querySelector(".open-command");
    note.append(made("code", "", command?.textContent ?? "traceanalyzer open"), "; Perfetto timestamp ",
      made("code", "", timestamp(mark.s[place])));
    return note;
  };
  const occurrence = (k, place) => {
    const mark = model.marks[k];
    const line = made("p", "tl-occurrence");
    const value = made("data", "", time(mark.c[place]));
    value.value = String(mark.c[place]);
    value.dataset.path = `diagnose#/findings/${mark.f}/occurrences/${mark.j[place]}/cost_ns`;
    value.dataset.unit = "ns";
    const card = made("a", "", `finding ${mark.f + 1}`);
    card.href = `#finding-${mark.f + 1}`;
    line.append("Occurrence ", String(mark.j[place] + 1), ` of ${mark.count.toLocaleString("en")} of `, card,
      `, ${mark.rule}: ${time(mark.t[place])} long, cost `, value);
    return mark.e[place] === THINNED ? [line, thinned(mark, place)] : [line];
  };
  // The events of each thread that take most of a gap.
  const meanwhile = (low, high) => model.tracks.flatMap(([kind], k) => {
    if (kind !== "thread") return [];
    const found = [];
    for (const list of model.levels[k]) {
      for (let n = model.after(list, low); n < list.length && model.start[list[n]] < high && found.length < 400; n += 1) {
        const i = list[n];
        if (/^ProfilerStep#/.test(model.name(i))) continue; // is around all
        found.push([Math.min(model.end[i], high) - Math.max(model.start[i], low), i]);
      }
    }
    found.sort((one, other) => other[0] - one[0]);
    return found.slice(0, 6);
  }).sort((one, other) => other[0] - one[0]).slice(0, 6);
  const table = (heads, cells) => {
    const whole = made("table");
    const fill = (part, name, texts) => {
      const row = part.insertRow();
      texts.forEach((text) => { const cell = made(name); cell.append(text); row.append(cell); });
    };
    fill(whole.createTHead(), "th", heads);
    const body = whole.createTBody();
    cells.forEach((row) => fill(body, "td", row));
    return whole;
  };
  const folded = (summary, content, open = false) => {
    const details = made("details");
    details.open = open;
    details.append(made("summary", "", summary), content);
    return details;
  };
  // What lies in a part: its sums by name, and a list.
  const area = (low, high) => {
    const events = model.between(low, high);
    const within = (i) => Math.min(model.end[i], high) - Math.max(model.start[i], low);
    const sums = new Map();
    for (const i of events) {
      const key = `${model.isWork(i)} ${model.name(i)}`;
      const sum = sums.get(key) ?? { i, count: 0, ns: 0 };
      [sum.count, sum.ns] = [sum.count + 1, sum.ns + within(i)];
      sums.set(key, sum);
    }
    const ordered = [...sums.values()].sort((one, other) => other.ns - one.ns);
    const lines = (work) => ordered.filter(({ i }) => model.isWork(i) === work).slice(0, MOST_NAMES)
      .map(({ i, count, ns }) => [ta.shortName(model.name(i)).slice(0, 70), kindName(i), count.toLocaleString("en"), time(ns), share(ns, high - low)]);
    const heads = ["name", "kind", "count", "time", "of the part"];
    const list = events.slice(0, MOST_LISTED).map((i) => [
      leading(ta.shortName(model.name(i)).slice(0, 60), () => go.event(i)), offset(model.start[i]), time(model.end[i] - model.start[i]),
      model.trackName(model.tracks[model.trackOf[i]]), model.text(columns.g[i]), model.text(columns.h[i]).slice(0, 80),
    ]);
    const kept = model.bands.some(([begin, end, least]) => !least && begin <= low && high <= end) ? ""
      : "; short events are left out here, but not in tinted steps";
    const more = events.length > MOST_LISTED ? `, the first ${MOST_LISTED}` : "";
    return [
      made("p", "note", `${time(high - low)} from ${offset(low)}: ${events.length.toLocaleString("en")} events${kept}`),
      folded("GPU, sums by name", table(heads, lines(true)), true),
      folded("CPU, sums by name; what is inside an op counts in both", table(heads, lines(false))),
      folded(`Events${more}`, table(["event", "start", "time", "on", "launched with", "shapes"], list)),
    ];
  };
  // What is said of a step is what its row in the table of steps says.
  const step = (number) => {
    const row = document.getElementById(`row-${model.trace}-${number}`);
    const heads = row ? [...row.closest("table").tHead.rows[0].cells] : [];
    const pairs = heads.slice(1).map((head, i) => [head.textContent, row.cells[i + 1].innerText.trim().replaceAll("\n", ", ")]);
    const cell = document.querySelector(`.heat [data-at="#step-${model.trace}-${number}"]`);
    if (cell) pairs.unshift(["waits for other ranks", cell.textContent], ["the others wait for it", cell.dataset.holds ?? ""]);
    const [, low, high] = model.steps.find(([one]) => one === number);
    return [made("p", "tl-title", `Step ${number}`), rows(made("dl"), pairs.filter(([, text]) => text)), ...area(low, high)];
  };
  // When nothing runs on a device around an instant; null where something does.
  const idleAt = (device, at) => {
    let [low, high, next] = [model.from, model.to, -1];
    for (const [k, [kind, one]] of model.tracks.entries()) {
      if (kind !== "stream" || one !== device) continue;
      const list = model.levels[k][0];
      const n = model.after(list, at);
      if (n < list.length && model.start[list[n]] <= at) return null;
      if (n > 0) low = Math.max(low, model.end[list[n - 1]]);
      if (n < list.length && model.start[list[n]] < high) [high, next] = [model.start[list[n]], list[n]];
    }
    return [low, high, next];
  };
  const gap = (track, at) => {
    const device = model.tracks[track][1];
    const idle = idleAt(device, at);
    if (!idle) return [made("p", "tl-title", `Nothing runs on ${model.trackName(model.tracks[track])}; another stream of GPU ${device} works`)];
    const [low, high, next] = idle;
    const seen = model.bands.some(([begin, end, least]) => begin <= at && at < end && !least)
      || model.gaps.some(([one, begin, end]) => one === device && begin <= at && at < end)
      || model.marks.some((mark) => mark.s.some((begin, q) => begin <= at && at < begin + mark.t[q]));
    const over = model.over.find((one) => one.device === device);
    const part = over && Math.min(Math.floor(((at - model.from) / (model.to - model.from)) * over.busy.length), over.busy.length - 1);
    const known = model.gaps.find(([one, begin, end]) => one === device && begin <= at && at < end);
    const why = known ? known[3] : over && over.why[part] >= 0 ? over.names[over.why[part]] : null;
    const title = made("p", "tl-title", seen
      ? `Nothing runs on GPU ${device}`
      : "No event is kept here: look at a tinted step, of which all events are kept");
    const cpu = meanwhile(low, high).map(([ns, i]) => leading(`${ta.shortName(model.name(i)).slice(0, 50)} (${time(ns)} of it)`, () => go.event(i)));
    const pairs = [
      ["for", `${time(high - low)} from ${offset(low)}`],
      ...(why ? [[known ? "because" : "cause of most idle time around", model.labels[why] ?? why]] : []),
      ...(known?.[4] ? [["function (first line)", made("code", "", known[4])]] : []),
      ...(cpu.length ? [["meanwhile on the CPU", ...cpu]] : []),
      ...(next >= 0 ? [["then starts", leading(said(next), () => go.event(next))]] : []),
    ];
    return [title, rows(made("dl"), seen ? pairs : pairs.slice(1, 2))];
  };
  return (state, place) => {
    const parts = [];
    if (state.mark >= 0 && state.place >= 0) parts.push(...occurrence(state.mark, state.place));
    if (state.found) {
      const { name, events, place: at } = state.found;
      parts.push(made("p", "tl-occurrence", `${at + 1} of ${events.length} pieces of ${name} among the events kept; n and p go on`));
    }
    if (state.event >= 0) parts.push(...event(state.event));
    else if (place?.low !== undefined) parts.push(...area(place.low, place.high));
    else if (place && place.step !== undefined) parts.push(...step(place.step));
    else if (place && place.track >= 0 && model.tracks[place.track][0] === "stream") parts.push(...gap(place.track, place.at));
    if (!parts.length) parts.push(made("p", "note", panel.dataset.hint));
    panel.replaceChildren(...parts);
  };
};
