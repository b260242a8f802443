// Keeps all files of the playground, so that it works without a connection after the first load.
"use strict";
const CACHE = "capsviz-playground-VERSION";
const FILES = ["FILES"];
self.addEventListener("install", (event) => event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES))));
self.addEventListener("activate", (event) => event.waitUntil(
  caches.keys().then((names) => Promise.all(names.filter((one) => one.startsWith("capsviz-playground-") && one !== CACHE).map((one) => caches.delete(one)))),
));
self.addEventListener("fetch", (event) => event.respondWith(
  caches.match(event.request, { ignoreSearch: true }).then((found) => found ?? fetch(event.request)),
));
