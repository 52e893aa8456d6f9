// Pages of `midspan lab serve` follow what changes. It comes before tables.js, to see what the server gave. All but these
// two works without them.
"use strict";

(() => {
  const told = document.getElementById("told");
  const live = () => document.querySelectorAll("[data-live]");
  const seen = new Map(); // part's id -> how the server gave it

  // What somebody has chosen, opened or is at outlives the part of the page that it is in.
  const nameOf = (it) => it.id || (it.name && `${it.name} ${it.value}`);

  function replace(old, young) {
    const at = old.contains(document.activeElement) ? nameOf(document.activeElement) : "";
    const chosen = new Set([...old.querySelectorAll("input:checked")].map(nameOf));
    const open = [...old.querySelectorAll("details")].map((details) => details.open);
    old.replaceWith(young);
    window.prepareTables();
    for (const box of young.querySelectorAll("input[type=checkbox]")) box.checked = chosen.has(nameOf(box));
    young.querySelectorAll("details").forEach((details, index) => {
      details.open = open[index] ?? details.open;
    });
    if (at) [...young.querySelectorAll("*")].find((it) => nameOf(it) === at)?.focus({ preventScroll: true });
  }

  async function refresh() {
    const answer = await fetch(location.href);
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const old of live()) {
      const young = page.getElementById(old.id);
      // What sorting and choosing did to the old one is not news.
      if (!young || seen.get(old.id) === young.innerHTML) continue;
      seen.set(old.id, young.innerHTML);
      replace(old, document.adoptNode(young));
      told.textContent = "Updated";
    }
  }

  async function follow() {
    let since = "";
    for (;;) {
      try {
        const answer = await fetch(`/changes?since=${encodeURIComponent(since)}`);
        const now = answer.ok ? await answer.text() : since;
        // The first answer may be newer than the page.
        if (now !== since) await refresh();
        since = now;
        if (!answer.ok) throw new Error("refused");
      } catch {
        // The server has ended; it may come again.
        await new Promise((resolve) => setTimeout(resolve, 2000));
      }
    }
  }

  for (const part of live()) seen.set(part.id, part.innerHTML);
  follow();
})();
