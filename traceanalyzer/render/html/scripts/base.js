"use strict";
// The page says everything without this; here is what moves. Whatever comes from the trace is put in as text.
// Each file is a block of its own; `ta` is what they share.
const ta = (() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  const made = (name, className, text) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const times = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]];
  // As the rest of the page says times: three significant digits and a unit.
  const time = (ns) => {
    const found = times.find(([scale]) => ns >= scale * 0.9995);
    if (!found) return `${ns.toFixed(0)} ns`;
    const value = ns / found[0];
    const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.max(value, 1)) + 1e-9));
    return `${value.toFixed(digits)} ${found[1]}`;
  };
  const share = (part, whole) => `${((100 * part) / Math.max(whole, 1)).toFixed(1)} %`;

  // What is packed: JSON, deflated, as base64. Nothing is fetched.
  const unpacked = async (text) => {
    const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  };

  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch { // a page from disk may not be allowed to
      const field = made("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      const done = document.execCommand("copy");
      field.remove();
      return done;
    }
  };

  // -- light, dark, or as the system has it ------------------------------------------------------------
  const theme = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const listeners = [];
  const named = () => {
    theme.textContent = dark() ? "Light" : "Dark";
    for (const listener of listeners) listener();
  };
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    named();
  });
  system.addEventListener("change", named);
  named();

  // -- a tip beside what the pointer or the focus is on ------------------------------------------------
  const tip = document.getElementById("tip");
  let shownAt = null;
  const hide = () => { tip.hidden = true; };
  const place = (left, top, bottom) => {
    const room = root.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(left, room))}px`;
    const above = top - tip.offsetHeight - 6;
    tip.style.top = `${above > 4 ? above : bottom + 6}px`;
  };
  const show = (element, text) => {
    shownAt = element;
    tip.textContent = text;
    tip.hidden = false;
    const at = element.getBoundingClientRect();
    place(at.left, at.top, at.bottom);
  };
  const showAt = (x, y, text) => {
    shownAt = null;
    tip.textContent = text;
    tip.hidden = false;
    place(x + 10, y, y + 14);
  };
  // The focus may scroll the page to what it is on: its tip goes along.
  const scrolled = () => {
    if (tip.hidden) return;
    if (shownAt && shownAt === document.activeElement) show(shownAt, tip.textContent);
    else hide();
  };
  addEventListener("scroll", scrolled, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  return { made, time, share, unpacked, copied, show, showAt, hide, onTheme: (listener) => listeners.push(listener) };
})();
