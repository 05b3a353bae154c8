// -- copying: commands, and a whole finding as Markdown ---------------------------------------------------
(() => {
  const offer = (button, textOf) => {
    const name = button.textContent;
    button.addEventListener("click", async () => {
      button.textContent = (await ta.copied(textOf())) ? "Copied" : "Select it by hand";
      button.focus();
      setTimeout(() => { button.textContent = name; }, 2500);
    });
  };
  for (const button of document.querySelectorAll(".copy")) offer(button, () => button.dataset.copy);
  const plain = (element) => (element?.textContent ?? "").replace(/\s+/g, " ").trim();
  const markdown = (card) => {
    const lines = [`### ${plain(card.querySelector("h3"))} (${plain(card.querySelector(".chip")).replace(/^\W+/, "")})`, ""];
    const amounts = [".saving", ".amounts"].map((name) => plain(card.querySelector(name))).filter(Boolean);
    lines.push(amounts.join("; "), "", plain(card.querySelector(".message")), "");
    lines.push(`**Remedy:** ${plain(card.querySelector(".advice span"))}`, "");
    const line = card.querySelector(".line code");
    if (line) lines.push(`Function (file, first line): \`${line.textContent}\``, "");
    const rows = [...card.querySelectorAll(".evidence tr")];
    if (rows.length) {
      lines.push("| evidence | |", "|---|---|");
      for (const row of rows) lines.push(`| ${[...row.cells].map((cell) => plain(cell).replaceAll("|", "\\|")).join(" | ")} |`);
      lines.push("");
    }
    for (const code of card.querySelectorAll(".copied .copy")) {
      if (code.dataset.copy.startsWith("traceanalyzer")) lines.push(`    ${code.dataset.copy}`);
    }
    return `${lines.join("\n")}\n`;
  };
  for (const button of document.querySelectorAll(".markdown")) offer(button, () => markdown(button.closest(".card")));
})();
