"""Others' trackers: TensorBoard, W&B and MLflow, written while training runs, or from a log afterwards."""
