"""A script that finds text of charts that is cut by the frame, shortened, or drawn over other text."""

FAULTS = """(() => {
  const corners = (text) => {  // of its box and of the space before and after it, on the screen
    const { x, y, width, height } = text.getBBox(), matrix = text.getScreenCTM();
    const edges = [x - 2, x + width + 2], lines = [y + .2 * height, y + .85 * height];
    return [[0, 0], [1, 0], [1, 1], [0, 1]].map(([i, j]) => new DOMPoint(edges[i], lines[j]).matrixTransform(matrix));
  };
  const apart = (a, b) => [a, b].some((box) => [0, 1].some((side) => {  // an axis on which two boxes are separate
    const axis = [box[side + 1].x - box[side].x, box[side + 1].y - box[side].y];
    const range = (other) => other.map((point) => point.x * axis[0] + point.y * axis[1]);
    const [first, second] = [range(a), range(b)];
    return Math.max(...first) <= Math.min(...second) || Math.max(...second) <= Math.min(...first);
  }));
  const faults = [];
  for (const svg of document.querySelectorAll(".chart svg, svg.chain")) {
    const name = svg.closest("section").querySelector("h2").textContent, frame = svg.getBoundingClientRect();
    // Vega leaves labels that would overlap in the file, with opacity 0
    const isVisible = (text) => text.textContent.trim() && text.getAttribute("opacity") !== "0";
    const texts = [...svg.querySelectorAll("text")].filter(isVisible), boxes = texts.map(corners);
    const [left, right, top, bottom] = [frame.left - 4, frame.right + 4, frame.top - 1, frame.bottom + 1];
    const isInside = ({ x, y }) => x > left && x < right && y > top && y < bottom;
    const report = (what, ...at) => faults.push([name, what, ...at.map((index) => texts[index].textContent)]);
    texts.forEach((text, index) => {
      if (text.textContent.endsWith("…")) report("shortened", index);
      if (!boxes[index].every(isInside)) report("cut", index);
      for (let other = 0; other < index; other++)
        if (!apart(boxes[index], boxes[other])) report("overlap", other, index);
    });
  }
  return faults;
})()"""
