for (const box of document.querySelectorAll(".filter")) {
  const traces = [...box.closest("section").querySelectorAll(":scope > .trace")];
  const texts = traces.map((trace) => trace.textContent.toLowerCase());
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    traces.forEach((trace, i) => { trace.hidden = !words.every((word) => texts[i].includes(word)); });
  });
}
