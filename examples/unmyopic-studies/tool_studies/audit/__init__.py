"""The audit of every trained model: do readable heads matter, and are essential heads readable?"""
