// What is said of the selected event, gap or occurrence; and where one can go from there.
ta.timelinePanel = (panel, model, go) => {
  const { made, time } = ta;
  const { ev: columns } = model;
  const KINDS = {
    op: "op", call: "runtime call", wait: "call that waits", annotation: "annotation", compute: "kernel",
    communication: "communication kernel", memset: "memset",
  };
  const kindName = (i) => KINDS[model.kind(i)] ?? "copy";
  const offset = (ns) => `${(ns / 1e6).toLocaleString("en", { minimumFractionDigits: 6, maximumFractionDigits: 6 })} ms`;
  const leading = (text, action) => {
    const button = made("button", "tl-go", text);
    button.type = "button";
    button.addEventListener("click", action);
    return button;
  };
  const rows = (list, pairs) => {
    for (const [name, ...values] of pairs) {
      const row = made("div");
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
      ...(columns.i[i] < 0 ? [] : [["your line", made("code", "", model.text(columns.i[i]))]]),
      ...(delay === null || delay === undefined ? [] : [["delay after its launch", time(delay)]]),
      ...links(i),
      ...(around.length ? [["in finding", ...around]] : []),
      ["event in the file", String(model.id[i])],
      ["Perfetto timestamp", made("code", "", String(BigInt(model.origin) + BigInt(Math.round(model.start[i]))))],
    ];
    const title = made("p", "tl-title");
    title.append(made("span", `swatch b-${/^(copy|compute|communication)/.exec(model.kind(i))?.[0] ?? model.kind(i)}`),
      `${kindName(i)} `, made("code", "", model.name(i)));
    return [title, rows(made("dl"), pairs)];
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
    return line;
  };
  // The events of each thread that take most of a gap.
  const meanwhile = (low, high) => model.tracks.flatMap(([kind], k) => {
    if (kind !== "thread") return [];
    const found = [];
    for (const list of model.levels[k]) {
      for (let n = model.after(list, low); n < list.length && model.start[list[n]] < high && found.length < 400; n += 1) {
        const i = list[n];
        found.push([Math.min(model.end[i], high) - Math.max(model.start[i], low), i]);
      }
    }
    found.sort((one, other) => other[0] - one[0]);
    return found.slice(0, 6);
  }).sort((one, other) => other[0] - one[0]).slice(0, 6);
  const gap = (track, at) => {
    const list = model.levels[track][0];
    const next = model.after(list, at);
    const low = next > 0 ? model.end[list[next - 1]] : model.from;
    const high = next < list.length ? model.start[list[next]] : model.to;
    const seen = model.bands.some(([begin, end, least]) => begin <= at && at < end && !least)
      || model.marks.some((mark) => mark.s.some((begin, q) => begin <= at && at < begin + mark.t[q]));
    const over = model.over.find((one) => one.device === model.tracks[track][1]);
    const part = over && Math.min(Math.floor(((at - model.from) / (model.to - model.from)) * over.busy.length), over.busy.length - 1);
    const why = over && over.why[part] >= 0 ? over.names[over.why[part]] : null;
    const title = made("p", "tl-title", seen
      ? `Nothing runs on ${model.trackName(model.tracks[track])}`
      : "No event is kept here: zoom into a step with full detail");
    const cpu = meanwhile(low, high).map(([ns, i]) => leading(`${ta.shortName(model.name(i)).slice(0, 50)} (${time(ns)} of it)`, () => go.event(i)));
    const pairs = [
      ["for", `${time(high - low)} from ${offset(low)}`],
      ...(why ? [["cause of most idle time around", model.labels[why] ?? why]] : []),
      ...(cpu.length ? [["meanwhile on the CPU", ...cpu]] : []),
      ...(next < list.length ? [["then starts", leading(said(list[next]), () => go.event(list[next]))]] : []),
    ];
    return [title, rows(made("dl"), seen ? pairs : pairs.slice(1, 2))];
  };
  return (state, place) => {
    const parts = [];
    if (state.mark >= 0 && state.place >= 0) parts.push(occurrence(state.mark, state.place));
    if (state.event >= 0) parts.push(...event(state.event));
    else if (place && place.track >= 0 && model.tracks[place.track][0] === "stream") parts.push(...gap(place.track, place.at));
    if (!parts.length) parts.push(made("p", "note", panel.dataset.hint));
    panel.replaceChildren(...parts);
  };
};
