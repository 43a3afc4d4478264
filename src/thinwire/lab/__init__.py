"""The lab: real runs and honest figures, made with thinwire's public interface only."""
