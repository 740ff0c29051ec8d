// Only the copy buttons need this script.
"use strict";

function copySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

// The clipboard API needs a secure page; on plain HTTP, copy a selection instead.
async function copy(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Fall back to copying a selection.
    }
  }
  return copySelection(text);
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const done = await copy(button.dataset.copy || button.previousElementSibling.textContent);
    button.focus();
    button.textContent = done ? "Copied" : "Select it";
    document.getElementById("aloud").textContent = done ? "Copied." : "It could not be copied.";
    setTimeout(() => {
      button.textContent = "Copy";
    }, 2000);
  });
}

// A menu closes on a click outside it, and on Escape.
for (const menu of document.querySelectorAll("details.account, details.new")) {
  document.addEventListener("click", (event) => {
    if (!menu.contains(event.target)) menu.open = false;
  });
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && menu.open) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
}
