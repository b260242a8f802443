"""What is done to images: augmentation, affine warps, corruptions."""
