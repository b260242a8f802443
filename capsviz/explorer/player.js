// Plays the frames of a `.cv-player` one after another; each new one begins by itself.
let timer = null;

function parts() {
  const player = element.querySelector(".cv-player");
  return player && {
    player,
    frames: [...player.querySelectorAll(".cv-frame")],
    traces: [...player.querySelectorAll(".cv-trace")],
    range: player.querySelector("input"),
    button: player.querySelector("button"),
  };
}

function show(k) {
  const on = parts();
  if (!on) return;
  on.frames.forEach((frame, i) => (frame.hidden = i !== k));
  on.range.value = k;
  for (const trace of on.traces) {
    const left = Number(trace.dataset.left), width = Number(trace.dataset.width);
    trace.setAttribute("width", left + 1 + ((width - left) * k) / (on.frames.length - 1));
  }
}

function stop() {
  clearInterval(timer);
  timer = null;
  const on = parts();
  if (on) on.button.textContent = "Play";
}

function play() {
  const on = parts();
  if (!on) return;
  stop();
  if (Number(on.range.value) >= on.frames.length - 1) show(0);
  on.button.textContent = "Pause";
  timer = setInterval(() => {
    const now = parts();
    if (!now) return stop();
    const k = Number(now.range.value) + 1;
    if (k >= now.frames.length) return stop();
    show(k);
  }, Number(on.player.dataset.ms));
}

element.addEventListener("click", (event) => {
  if (event.target.closest(".cv-player button")) timer ? stop() : play();
});
element.addEventListener("input", (event) => {
  if (event.target.matches(".cv-player input")) {
    stop();
    show(Number(event.target.value));
  }
});
let last = null;
new MutationObserver(() => {
  const on = parts();
  if (!on) {
    last = null;
    return stop();
  }
  if (on.player !== last) {
    last = on.player;
    show(0);
    play();
  }
}).observe(element, { childList: true, subtree: true });
