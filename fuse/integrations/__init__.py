"""Libraries that choose a device for their user: each file makes one of them know this device."""
