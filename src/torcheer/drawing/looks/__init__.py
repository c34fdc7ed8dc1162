"""The appearance of drawings: colours, fonts, shapes, legend, the user's style."""
