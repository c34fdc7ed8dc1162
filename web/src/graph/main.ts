// The drawing's page: not here yet.
document.documentElement.dataset.torcheer = "graph";
