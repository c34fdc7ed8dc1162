"""How everything looks: colours, fonts, shapes, legends, a user's style."""
