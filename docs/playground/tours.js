// Three guided tours. A step sets parts of the page; `predicted` is what the first network must then answer.
"use strict";
const TOURS = [
  {
    title: "Does routing matter?",
    steps: [
      { text: "This digit goes through the network “digits” with three iterations of dynamic routing. The panel on the right shows how each type of primary capsule is coupled to each class. Move the slider “Iteration”: the couplings start uniform and hardly change.",
        set: { first: "digits", beside: "mnist-attention", image: "digits-2", routing: "trained" }, predicted: "2" },
      { text: "Now routing is switched off: every capsule is coupled equally to every class. The prediction stays. Over many images, too, dynamic routing changes almost no prediction.",
        set: { routing: "uniform" }, predicted: "2" },
      { text: "The image now gets the couplings of another digit, a 7, and keeps its own votes. At dose 1 nothing happens, because these couplings deviate little from uniform.",
        set: { routing: "another", donor: "digits-7", dose: 1 }, predicted: "2" },
      { text: "The deviation is eight times as large, and the prediction follows the other digit. Small deviations can carry the class, if they are large enough. Drag the dose and find where it turns.",
        set: { dose: 8 }, predicted: "7" },
      { text: "Another network, “mnist-attention”, with couplings that deviate much more: here dose 1 is enough. Whether couplings decide is a question of their size, and differs between networks.",
        set: { first: "mnist-attention", beside: "digits", image: "mnist-2", donor: "mnist-7", dose: 1 }, predicted: "7" },
    ],
  },
  {
    title: "What is in a pose?",
    steps: [
      { text: "The longest class capsule has a pose of 16 numbers. The decoder draws the digit from these numbers alone: compare the reconstruction with the input.",
        set: { first: "mnist-attention", beside: "digits", image: "mnist-2", routing: "trained" }, predicted: "2" },
      { text: "Below, one number of the pose is changed. Drag the sliders “Dimension” one by one: some change slant, some width or stroke, many a little of everything.",
        set: { changes: { 0: 0.25 } } },
      { text: "Rotate the image instead: the pose follows for some degrees, and the reconstruction with it. Then another class wins, and the decoder draws that one.",
        set: { changes: {}, angle: 25 } },
      { text: "The reconstruction is a drawing of what the pose says, not of what the image shows. Choose other classes under “Votes and evidence for class”: their poses are decoded below as well, though they are short.",
        set: { angle: 0 } },
    ],
  },
  {
    title: "Can it be fooled?",
    steps: [
      { text: "An image as in training, and both networks are right. The lengths of the class capsules need not add up to 1: they say how present each class is.",
        set: { first: "mnist-attention", beside: "digits", image: "mnist-2", routing: "trained" }, predicted: "2" },
      { text: "The same digit on its side. It is still one object with the same parts, but the network was trained on upright digits. Look whether the reconstruction resembles the input.",
        set: { angle: 90 } },
      { text: "Shifted by 8 pixels, further than in training (2 pixels). Many capsule networks lose more outside the range of shifts used in training than a network with pooling.",
        set: { angle: 0, right: 8 } },
      { text: "This image was made by an attack: each pixel is changed by at most 0.2 so that the network is wrong. Its reconstruction is that of another digit, which a detector can notice. An attack that knows of the detector evades it.",
        set: { right: 0, image: "attacked" } },
    ],
  },
];
