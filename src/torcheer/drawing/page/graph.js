"use strict";(()=>{document.documentElement.dataset.torcheer="graph";})();
