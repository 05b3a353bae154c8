(() => {
  const { made } = ta;
  // -- copying -----------------------------------------------------------------------------------------
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
  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      button.textContent = (await copied(button.dataset.copy)) ? "Copied" : "Select it by hand";
      button.focus();
      setTimeout(() => { button.textContent = "Copy"; }, 2500);
    });
  }
})();
