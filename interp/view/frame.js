"use strict";
// In a notebook or another page, which have their own heading: no heading, and a frame as high as its content.
if (self !== top) {
  document.body.classList.add("embedded");
  const fit = () => { if (frameElement) frameElement.style.height = `${Math.ceil(document.body.getBoundingClientRect().height) + 2}px`; };
  new ResizeObserver(fit).observe(document.body);
}
