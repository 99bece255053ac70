"""The engine: joins planner, backends and cache, and is what the native core calls."""
