"""The same for the asynchronous SDK. `pairbus.pairing` decides; only the calls differ."""
