"""Files of images and recordings: which kind they are, how large, and whether they are whole.

Open first: `image.py`, then `sound.py`. Pure: bytes in, facts or a sentence about what is wrong out. *Head*: the first
bytes, which tell kind and size. *Kind*: the format. *Recording*: a file of sound.
"""
