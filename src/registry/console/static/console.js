// Only the copy buttons and uploads need this script.
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

// Files are sent one after the other, each as the body of a request.
function send(form, file) {
  return new Promise((done) => {
    const request = new XMLHttpRequest();
    const bar = form.querySelector("progress");
    const key = encodeURIComponent(form.dataset.prefix + file.name);
    request.open("PUT", `${form.getAttribute("action")}?key=${key}`);
    request.setRequestHeader("x-csrf", form.elements.csrf.value);
    request.setRequestHeader("content-type", file.type || "application/octet-stream");
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) bar.value = (100 * event.loaded) / event.total;
    });
    request.addEventListener("loadend", () => {
      let answer = {};
      try {
        answer = JSON.parse(request.responseText);
      } catch {
        // It is no answer to an upload.
      }
      if (answer.object) return done("");
      if (answer.error) return done(answer.error.message);
      done(request.status ? `the server answered ${request.status}` : "the connection broke");
    });
    request.send(file);
  });
}

for (const form of document.querySelectorAll("form[data-upload]")) {
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const said = form.querySelector("[data-said]");
    form.querySelector("button").disabled = true;
    form.querySelector("progress").hidden = false;
    for (const file of form.querySelector("input[type=file]").files) {
      said.textContent = `Uploading ${file.name}`;
      const refused = await send(form, file);
      if (refused) {
        said.textContent = `${file.name} was not stored: ${refused}.`;
        form.querySelector("button").disabled = false;
        return;
      }
    }
    location.reload();
  });
}
