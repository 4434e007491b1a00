"""Certificates, tokens, who may call what."""
