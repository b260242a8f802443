// Chooses a prepared case: its key is the value.
element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-case]");
  if (!button) return;
  props.value = button.dataset.case;
  trigger("input");
});
