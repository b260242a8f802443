// Draw on a sheet with mouse, pen or finger; call `drawn` as a stroke grows. Return a function that clears it.
function penOn(sheet, drawn) {
  const pen = sheet.getContext("2d", { willReadFrequently: true });
  let last = null;

  function stroke(event) {
    const box = sheet.getBoundingClientRect();
    const point = [
      ((event.clientX - box.left) * sheet.width) / box.width,
      ((event.clientY - box.top) * sheet.height) / box.height,
    ];
    pen.lineWidth = sheet.width / 13;
    pen.lineCap = pen.lineJoin = "round";
    pen.beginPath();
    pen.moveTo(...(last ?? point));
    pen.lineTo(...point);
    pen.stroke();
    last = point;
    sheet.parentElement.classList.add("cv-drawn");
    drawn();
  }

  sheet.addEventListener("pointerdown", (event) => {
    sheet.setPointerCapture(event.pointerId);
    last = null;
    stroke(event);
  });
  sheet.addEventListener("pointermove", (event) => {
    if (last) stroke(event);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    sheet.addEventListener(name, () => (last = null));
  }
  return () => {
    pen.clearRect(0, 0, sheet.width, sheet.height);
    sheet.parentElement.classList.remove("cv-drawn");
  };
}
