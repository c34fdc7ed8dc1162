class InputConverter:
    def __call__(self, image_path):
        from PIL import Image

        with Image.open(image_path) as image:
            return image.copy(), None
