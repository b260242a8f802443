// A prepared case is chosen: its key is the value.
element.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-case]");
  if (!button) return;
  props.value = button.dataset.case;
  trigger("input");
});
