// Three guided tours. A step sets parts of the page, on top of those before it.
// `predicted` is what the first network must then answer: a test follows all tours.
"use strict";
const TOURS = [
  {
    title: "Does routing matter?",
    steps: [
      { text: "This digit goes through the network “digits” with three iterations of dynamic routing. Under “Routing” you see how each type of primary capsule (column) is coupled to each class (row). Move the slider “Iteration”: couplings start uniform and stay close to it, and yet the capsule of the right class grows a little.",
        set: { first: "digits", beside: "mnist-attention", image: "digits-2" }, predicted: "2" },
      { text: "Now routing is switched off: every capsule is coupled equally to every class. The prediction stays. Over the whole test set, too, the accuracy of this network is not shown to change (finding 2 of the documentation).",
        set: { routing: "uniform" }, predicted: "2" },
      { text: "The image gets the couplings of a 7, and keeps its own votes. At dose 1 it is still a 2: these couplings point at class 7, but they deviate too little from uniform.",
        set: { routing: "another", donor: "digits-7" }, predicted: "2" },
      { text: "Here their deviation is four times as large, and the prediction is 7. The couplings had the class in them all along. Drag the dose and find where it turns. Very large doses are unlike anything in training, and mean little.",
        set: { dose: 4 }, predicted: "7" },
      { text: "Another network, “mnist-attention”, has couplings that deviate much more. In it dose 1 is enough. Whether couplings decide is a question of their size, and differs between networks (finding 1).",
        set: { first: "mnist-attention", beside: "digits", image: "mnist-2", donor: "mnist-7", dose: 1 }, predicted: "7" },
    ],
  },
  {
    title: "What is in a pose?",
    steps: [
      { text: "The longest class capsule is a vector of 16 numbers, its pose. The decoder draws the digit from these numbers alone: compare the reconstruction with the input.",
        set: {}, predicted: "2" },
      { text: "At the bottom of the page, one number of the pose is changed. Drag the sliders “Dimension” one by one: most change several things at once, as slant, width and stroke.",
        set: { changes: { 0: 0.15 } } },
      { text: "Rotate the image instead. For a few degrees the reconstruction follows; at 25°, shown here, it is deformed. Drag the angle further: another class wins, and the decoder draws that one.",
        set: { changes: {}, angle: 25 } },
      { text: "Choose other classes under “Class to look at”. Their capsules are short, because these classes are absent, but they have poses as well, which are drawn at the bottom of the page.",
        set: { angle: 0, shown: 7 } },
    ],
  },
  {
    title: "Can a network be fooled?",
    steps: [
      { text: "An image as in training. The lengths of the class capsules need not add up to 1: each says how present its class is.",
        set: {}, predicted: "2" },
      { text: "The same digit on its side, which training did not show. “mnist-attention” still says 2, but look at the reconstruction: the pose does not describe the input. The other network names another digit.",
        set: { angle: 90 }, predicted: "2" },
      { text: "Shifted by 8 pixels; training shifted by 2 at most. This image survives, with a shorter capsule. Over many images, capsule networks lose more by large shifts than a network with pooling (finding 8).",
        set: { angle: 0, right: 8 }, predicted: "2" },
      { text: "This was a 3. An attack has changed each pixel by at most 0.2, on a scale from 0 to 1, until “mnist-attention” is wrong. The reconstruction is of the wrong digit, so comparing it with the input can reveal the attack, unless the attack also makes the two alike (finding 10).",
        set: { right: 0, image: "attacked" } },
    ],
  },
];
