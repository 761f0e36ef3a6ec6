// Brings the page up to date while its campaign runs. Only what differs is changed, so that focus, the scroll position, a
// selection and opened details stay.
"use strict";

const SECONDS = 1.5;
let tag = "";

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.id || node.dataset.key || "" : "";
}

function alike(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);
}

function bring(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const keyed = keyOf(child) !== "";
    let same = place;
    while (same && !alike(same, child)) {
      same = !keyed && keyOf(same) ? null : same.nextSibling;
    }
    if (!same) {
      old.insertBefore(document.adoptNode(child), place);
      continue;
    }
    while (place !== same) { // what was before it is gone
      const gone = place;
      place = place.nextSibling;
      gone.remove();
    }
    place = same.nextSibling;
    bring(same, child);
  }
  while (place) {
    const gone = place;
    place = place.nextSibling;
    gone.remove();
  }
}

function say(text) {
  const line = document.getElementById("live");
  line.className = "live silent";
  if (line.textContent !== text) line.textContent = text;
  tag = "";
}

async function update() {
  if (document.hidden) return;
  try {
    const answer = await fetch("/", { headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 304) return;
    const text = await answer.text();
    if (!answer.ok) {
      say(text);
      return;
    }
    const fresh = new DOMParser().parseFromString(text, "text/html");
    bring(document.querySelector("main"), fresh.querySelector("main"));
    document.title = fresh.title;
    tag = answer.headers.get("ETag") || "";
  } catch {
    say("The server does not answer: this page is as it was before.");
  }
}

async function loop() {
  await update();
  setTimeout(loop, 1000 * SECONDS);
}

document.addEventListener("visibilitychange", update);
setTimeout(loop, 1000 * SECONDS);
