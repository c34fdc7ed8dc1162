"""What people log beside numbers: images, sound, text, tables, confusion matrices."""
